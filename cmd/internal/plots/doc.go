// Package plots draws figures for reports: lines, labelled points, grouped and stacked bars, each as PNG and SVG.
//
//	figure.go   what a figure is made of        axis.go    ranges and ticks
//	draw.go     layout and what all kinds share  kinds.go   lines, points, bars
//	font.go     the one font, parsed when first needed
//	write.go    files: SVG, PNG, atomic
//
// It draws on gonum.org/v1/plot's canvases (vg, vgimg, vgsvg) with axes of its own, not with the package gonum.org/v1/plot:
// importing that one parses twelve fonts before main, 2 MiB of memory in every run of nprun, whose memory is budgeted. Here
// nothing is parsed or allocated until a figure is drawn, and then one font.
//
// Colours are those of Okabe and Ito, which colour-blind people tell apart; lines differ in dashes and markers as well. The
// same figure gives the same bytes.
//
// It may import format and the drawing libraries. Start at Write.
package plots
