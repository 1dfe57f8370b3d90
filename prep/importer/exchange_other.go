//go:build !linux

package importer

func exchange(a, b string) error { return replace(a, b) }
