// Package measure finds out what this machine does, for people and for plans.
//
//	curve.go      how fast the drive under a file answers random reads: Drive
//	keep.go       small files that hold what was measured
//	host.go       what the kernel says of memory and limits: ReadHost
//	calibrate.go  which dense prefix is the fastest under a memory budget: Calibrate
//
// Everything goes through the reader and the engine that run models, so that what is measured is what will run. It may
// import format/... and the other packages of runtime.
package measure
