//go:build !purego

package kernels

func fastLevels() []string { return []string{"neon"} } // part of the base architecture

func hasVPOPCNT() bool { return false }
