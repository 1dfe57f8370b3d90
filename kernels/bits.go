package kernels

import "math/bits"

// And sets dst = a & b, word by word. Equal lengths; dst may be a or b.
func And(dst, a, b []uint64) {
	check(len(dst) == len(a) && len(b) == len(a), "And")
	for i, w := range a {
		dst[i] = w & b[i]
	}
}

// AndNot sets dst = a &^ b. Equal lengths; dst may be a or b.
func AndNot(dst, a, b []uint64) {
	check(len(dst) == len(a) && len(b) == len(a), "AndNot")
	for i, w := range a {
		dst[i] = w &^ b[i]
	}
}

// Popcount counts the set bits.
func Popcount(a []uint64) int {
	n := 0
	for _, w := range a {
		n += bits.OnesCount64(w)
	}
	return n
}

// AndCount counts the bits set in both. Equal lengths.
func AndCount(a, b []uint64) int {
	check(len(b) == len(a), "AndCount")
	n := 0
	for i, w := range a {
		n += bits.OnesCount64(w & b[i])
	}
	return n
}

// Hamming counts the bits that differ. Equal lengths.
func Hamming(a, b []uint64) int {
	check(len(b) == len(a), "Hamming")
	var d [1]int32
	hammingRows(d[:], a, b)
	return int(d[0])
}

// HammingRows sets dst[r] = Hamming(q, table[r*len(q):][:len(q)]).
// len(table) = len(dst)·len(q).
func HammingRows(dst []int32, q []uint64, table []uint64) {
	check(len(table) == len(dst)*len(q), "HammingRows")
	hammingRows(dst, q, table)
}

func hammingRowsGeneric(dst []int32, q, table []uint64) {
	for r := range dst {
		row := table[r*len(q):][:len(q)]
		n := 0
		for i, w := range q {
			n += bits.OnesCount64(w ^ row[i])
		}
		dst[r] = int32(n)
	}
}
