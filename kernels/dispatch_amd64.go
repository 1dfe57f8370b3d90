//go:build !purego

package kernels

import "github.com/klauspost/cpuid/v2"

func fastLevels() []string {
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C) {
		return nil
	}
	if !cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512VL, cpuid.AVX512DQ) {
		return []string{"avx2"}
	}
	return []string{"avx2", "avx512"}
}

func hasVPOPCNT() bool { return cpuid.CPU.Supports(cpuid.AVX512VPOPCNTDQ) }
