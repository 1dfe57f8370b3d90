// Package plots draws figures for reports: lines, labelled points, grouped and stacked bars, each as PNG and SVG.
//
//	figure.go   what a figure is made of              axis.go   ranges and ticks
//	draw.go     layout and what all kinds share       kinds.go  lines, points, bars
//	canvas.go   what a figure is drawn on             svg.go, raster.go  the two canvases
//	font.go     the one font, parsed when first needed  write.go  files, written atomically
//
// It stands on golang.org/x/image (vector, opentype), not on gonum.org/v1/plot: linking that brought tables of its LaTeX
// reader and twelve fonts into every run of nprun, whose memory is budgeted: 1.7 MiB more at the peak of a small run, even
// with the parsing of the fonts left out. Here nothing is parsed or allocated until a figure is drawn, and then one font.
//
// Colours are those of Okabe and Ito, which colour-blind people tell apart; lines differ in dashes and markers as well. The
// same figure gives the same bytes.
//
// It may import format and the drawing libraries. Start at Write.
package plots
