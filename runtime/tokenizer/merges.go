package tokenizer

// merges holds the merge rules in order of rank, and an open-addressing hash from a pair of ids to the rank.
type merges struct {
	left, right, result []int32 // by rank
	slots               []int32 // rank + 1, 0 free; length a power of two
}

func newMerges(count int) *merges {
	n := 64
	for n*2 < count*3 {
		n *= 2
	}
	return &merges{
		left: make([]int32, 0, count), right: make([]int32, 0, count), result: make([]int32, 0, count),
		slots: make([]int32, n),
	}
}

func pairHash(a, b int32) uint64 {
	h := (uint64(uint32(a))<<32 | uint64(uint32(b))) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// put adds the next rule. A pair that comes twice keeps the later rank, as the reference does.
func (m *merges) put(a, b, result int32) {
	rank := int32(len(m.left))
	m.left, m.right, m.result = append(m.left, a), append(m.right, b), append(m.result, result)
	mask := uint64(len(m.slots) - 1)
	i := pairHash(a, b) & mask
	for ; m.slots[i] != 0; i = (i + 1) & mask {
		if r := m.slots[i] - 1; m.left[r] == a && m.right[r] == b {
			break
		}
	}
	m.slots[i] = rank + 1
}

// find returns the rank of a pair, or -1.
func (m *merges) find(a, b int32) int32 {
	mask := uint64(len(m.slots) - 1)
	for i := pairHash(a, b) & mask; m.slots[i] != 0; i = (i + 1) & mask {
		if r := m.slots[i] - 1; m.left[r] == a && m.right[r] == b {
			return r
		}
	}
	return -1
}
