// Package train is a preparation stage.
package train
