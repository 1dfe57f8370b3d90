package kernels

import "unsafe"

// F16ToF32 widens float16 to float32, exactly. len(dst) = len(src).
func F16ToF32(dst []float32, src []uint16) {
	check(len(dst) == len(src), "F16ToF32")
	n := f16ToF32(dst, src)
	f16ToF32Generic(dst[n:], src[n:])
}

// F32ToF16 narrows to float16, to nearest, ties to even; overflow gives an
// infinity, NaN stays NaN. len(dst) = len(src).
func F32ToF16(dst []uint16, src []float32) {
	check(len(dst) == len(src), "F32ToF16")
	n := f32ToF16(dst, src)
	f32ToF16Generic(dst[n:], src[n:])
}

// BF16ToF32 widens bfloat16 to float32, exactly. len(dst) = len(src).
func BF16ToF32(dst []float32, src []uint16) {
	check(len(dst) == len(src), "BF16ToF32")
	n := bf16ToF32(dst, src)
	bf16ToF32Generic(dst[n:], src[n:])
}

// check panics when a caller broke a length rule: a bug, never bad input.
func check(ok bool, name string) {
	if !ok {
		panic("kernels: " + name + ": wrong lengths")
	}
}

// Views: the same memory seen as another type, little-endian machines only.
// They panic where the length or the alignment does not fit.

// BytesU16 views bytes as 16-bit words.
func BytesU16(b []byte) []uint16 { return view[uint16](b) }

// BytesU64 views bytes as 64-bit words.
func BytesU64(b []byte) []uint64 { return view[uint64](b) }

// BytesF32 views bytes as float32.
func BytesF32(b []byte) []float32 { return view[float32](b) }

// U16Bytes views 16-bit words as bytes.
func U16Bytes(u []uint16) []byte { return bytesOf(u) }

// U64Bytes views 64-bit words as bytes.
func U64Bytes(u []uint64) []byte { return bytesOf(u) }

// F32Bytes views float32 as bytes.
func F32Bytes(f []float32) []byte { return bytesOf(f) }

type word interface{ uint16 | uint64 | float32 }

func view[T word](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var zero T
	p := unsafe.Pointer(unsafe.SliceData(b))
	if size := unsafe.Sizeof(zero); uintptr(len(b))%size != 0 || uintptr(p)%size != 0 {
		panic("kernels: view of bytes: length or address is not a multiple of the element size")
	}
	return unsafe.Slice((*T)(p), len(b)/int(unsafe.Sizeof(zero)))
}

func bytesOf[T word](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(s[0])))
}
