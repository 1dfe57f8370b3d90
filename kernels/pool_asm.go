//go:build !purego && (amd64 || arm64)

package kernels

// pause spends some hundred nanoseconds telling the core that this is a waiting loop.
//
//go:noescape
func pause()
