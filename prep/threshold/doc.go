// Package threshold is a preparation stage.
package threshold
