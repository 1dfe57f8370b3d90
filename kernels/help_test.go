package kernels

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"unsafe"
)

// eachLevel runs f under every level that this machine has. NP_REQUIRE names a
// level whose absence is a failure (for the builder that is meant to have it).
func eachLevel(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	need := os.Getenv("NP_REQUIRE")
	for _, l := range Levels() {
		if l == need {
			need = ""
		}
		t.Run(l, func(t *testing.T) {
			defer SetLevel(l)()
			f(t)
		})
	}
	if need != "" {
		t.Errorf("level %s is required and not supported here", need)
	}
}

// lengths are those around every vector width and its unrolled multiples.
func lengths() []int {
	var ns []int
	for n := range 66 {
		ns = append(ns, n)
	}
	for _, n := range []int{96, 128, 256, 512, 576, 1024, 2048, 4096} {
		ns = append(ns, n-1, n, n+1)
	}
	return ns
}

// An arena is memory between two pages that must not be touched. A slice from
// it lies against the front or the back page, so that a read or a write one
// element outside is a fault; the rest of the arena is filled with a pattern
// that intact finds changed.
type arena struct {
	mem  []byte
	page int
	lo   int // the bytes handed out are mem[lo:hi]
	hi   int
}

const (
	pattern   = 0xa5
	arenaSize = 1 << 17
)

func newArena(t testing.TB) *arena {
	t.Helper()
	page := os.Getpagesize()
	mem, err := syscall.Mmap(-1, 0, 2*page+arenaSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(mem) })
	for i := range mem {
		mem[i] = pattern
	}
	for _, g := range [][]byte{mem[:page], mem[len(mem)-page:]} {
		if err := syscall.Mprotect(g, syscall.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return &arena{mem: mem, page: page, lo: page, hi: page}
}

// take gives n elements at the front (atEnd false) or the back of the arena.
func take[T any](a *arena, n int, atEnd bool) []T {
	for i := a.lo; i < a.hi; i++ {
		a.mem[i] = pattern
	}
	var zero T
	size := n * int(unsafe.Sizeof(zero))
	a.lo = a.page
	if atEnd {
		a.lo = len(a.mem) - a.page - size
	}
	a.hi = a.lo + size
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&a.mem[a.lo])), n)
}

// intact fails where the arena outside the last slice is not as it was.
func (a *arena) intact(t *testing.T, what string) {
	t.Helper()
	before, after := a.mem[a.page:a.lo], a.mem[a.hi:len(a.mem)-a.page]
	if !bytes.Equal(before, untouched[:len(before)]) || !bytes.Equal(after, untouched[:len(after)]) {
		t.Fatalf("%s: wrote outside its slice", what)
	}
}

var untouched = bytes.Repeat([]byte{pattern}, arenaSize)

// An allowance collects the worst error as a share of what is allowed.
type allowance struct {
	t     *testing.T
	what  string
	worst float64
}

func allow(t *testing.T, what string) *allowance {
	a := &allowance{t: t, what: what}
	t.Cleanup(func() { t.Logf("%s: worst error %.1f %% of the allowance", what, 100*a.worst) })
	return a
}

// check fails where |got − want| > limit, or where one of both is not finite
// and the other is something else.
func (a *allowance) check(got float32, want, limit float64, format string, args ...any) {
	a.t.Helper()
	g := float64(got)
	switch {
	case math.IsNaN(want) && math.IsNaN(g), math.IsInf(want, 0) && g == want:
		return
	}
	err := math.Abs(g - want)
	if !(err <= limit) {
		a.t.Fatalf("%s %s: got %g, want %g within %g", a.what, fmt.Sprintf(format, args...), got, want, limit)
	}
	if limit > 0 {
		a.worst = max(a.worst, err/limit)
	}
}

func wantBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		g, w := math.Float32bits(got[i]), math.Float32bits(want[i])
		if g != w && !(got[i] != got[i] && want[i] != want[i]) {
			t.Fatalf("%s: element %d of %d: got %g (%08x), want %g (%08x)", what, i, len(want), got[i], g, want[i], w)
		}
	}
}

// Kinds of operands: what a model holds, and what breaks kernels.
var kinds = []string{"normal", "wide", "tiny", "special"}

func randF32(r *rand.Rand, x []float32, kind string) {
	for i := range x {
		v := r.NormFloat64()
		switch kind {
		case "wide":
			v *= math.Pow(2, float64(r.IntN(40)-20))
		case "tiny":
			v *= 0x1p-130
		case "special":
			if r.IntN(40) == 0 {
				v = []float64{math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(0, -1), 0, 0x1p-149}[r.IntN(6)]
			}
		}
		x[i] = float32(v)
	}
}

func randF16(r *rand.Rand, w []uint16, kind string) {
	for i := range w {
		v := r.NormFloat64() * 0.05
		switch kind {
		case "wide":
			v *= math.Pow(2, float64(r.IntN(24)-12))
		case "tiny":
			v *= 0x1p-17
		case "special":
			if r.IntN(40) == 0 {
				w[i] = []uint16{0x7c00, 0xfc00, 0x7e00, 0x8000, 0, 1}[r.IntN(6)]
				continue
			}
		}
		w[i] = F16Bits(float32(v))
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x6e70)) }

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
