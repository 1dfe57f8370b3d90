// Package capture is a preparation stage.
package capture
