//go:build purego || !(amd64 || arm64)

package kernels

import "runtime"

func pause() { runtime.Gosched() }
