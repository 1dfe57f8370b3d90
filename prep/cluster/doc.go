// Package cluster is a preparation stage.
package cluster
