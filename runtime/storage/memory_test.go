package storage

import (
	"math/rand/v2"
	"testing"
)

func TestAllocAligned(t *testing.T) {
	for _, n := range []int{1, 4095, 4096, 4097, hugePage - 1, hugePage, 3*hugePage + 5} {
		b, free, err := AllocAligned(n)
		if err != nil {
			t.Fatal(err)
		}
		align := uintptr(4096)
		if n >= hugePage {
			align = hugePage
		}
		if len(b) != n || address(b)%align != 0 {
			t.Errorf("%d bytes: %d at %#x", n, len(b), address(b))
		}
		for i := range b {
			if b[i] != 0 {
				t.Fatalf("%d bytes: not zero", n)
			}
			b[i] = 1
		}
		free()
		free() // a second time does nothing
	}
	if b, free, err := AllocAligned(0); len(b) != 0 || err != nil {
		t.Errorf("0 bytes: %d %v", len(b), err)
	} else {
		free()
	}
	if _, _, err := AllocAligned(1 << 60); err == nil {
		t.Error("2^60 bytes: no error")
	}
}

// TestStaging runs the allocator against a plain map of bytes: ranges never overlap, stay inside, and room is found whenever
// there is some.
func TestStaging(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, units := range []int{1, 2, 63, 64, 65, 130, 1792} {
		s, err := newStaging(units * stagingUnit)
		if err != nil {
			t.Fatal(err)
		}
		owner := make([]int, units)
		var held [][]byte
		for step := 1; step <= 20000; step++ {
			if rng.IntN(2) == 0 && len(held) > 0 {
				i := rng.IntN(len(held))
				b := held[i]
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
				first := int(address(b)-address(s.mem)) / stagingUnit
				for u := first; u < first+(len(b)+stagingUnit-1)/stagingUnit; u++ {
					owner[u] = 0
				}
				s.give(b)
				continue
			}
			size := 1 + rng.IntN(min(units, 80)*stagingUnit)
			need := (size + stagingUnit - 1) / stagingUnit
			run, room := 0, false
			for _, o := range owner {
				if run++; o != 0 {
					run = 0
				}
				room = room || run >= need
			}
			b := s.take(size)
			if (b != nil) != room {
				t.Fatalf("%d units, step %d: room for %d is %v, got %d bytes", units, step, need, room, len(b))
			}
			if b == nil {
				continue
			}
			first := int(address(b)-address(s.mem)) / stagingUnit
			for u := first; u < first+need; u++ {
				if owner[u] != 0 {
					t.Fatalf("%d units, step %d: unit %d given twice", units, step, u)
				}
				owner[u] = step
			}
			if len(b) != size || address(b)%stagingUnit != 0 {
				t.Fatalf("%d bytes at %#x, want %d", len(b), address(b), size)
			}
			held = append(held, b)
		}
		s.free()
	}
}
