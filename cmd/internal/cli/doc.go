// Package clix is what npprep and nprun share: exit codes, the voice of errors, sizes as text, signals.
//
// Exit codes: 0 done, 2 usage, 3 bad input, 4 does not fit, 5 I/O, 130 interrupted. 2 is what the command line alone shows to
// be wrong; a value that does not go with the bundle or the checkpoint it is used with is 3.
// Errors are one line on stderr, "npprep: error: ...", with what to do on a second, "npprep: hint: ...".
// stdout carries results only.
//
// Imports: format. Start at Main.
package clix
