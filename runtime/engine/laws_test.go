package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/runtime/storage"
)

// script is a run: two prompts with steps after each, so that prefill meets a warm engine too.
var script = []struct{ prompt, steps []int32 }{
	{[]int32{532, 885, 329, 470, 886, 884, 337}, []int32{515, 313, 280, 264, 225, 281, 71, 270}},
	{[]int32{86, 72}, []int32{18, 561, 225, 426, 691}},
}

// trace runs the script and returns every logit.
func trace(t testing.TB, e *Engine) []float32 {
	t.Helper()
	e.Reset()
	var all []float32
	for _, s := range script {
		l, err := e.Prefill(context.Background(), s.prompt)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l...)
		for _, id := range s.steps {
			if l, err = e.Step(context.Background(), id); err != nil {
				t.Fatal(err)
			}
			all = append(all, l...)
		}
	}
	return all
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// TestLaw1 holds resident = stream = sparse with K_max = M, bit for bit, for any number of layers in memory, both
// record layouts and both ways to read.
func TestLaw1(t *testing.T) {
	for _, align := range []int{0, 4096} {
		dir := buildBundle(t, align)
		want := trace(t, openEngine(t, dir, Options{Mode: ModeResident}))
		for _, io := range []string{"uring", "pread"} {
			for _, d := range []int{1, 3, 5} {
				o := Options{Mode: ModeStream, Dense: d, Storage: storage.Options{Backend: io}}
				sameBits(t, fmt.Sprintf("stream, %d layers in memory, %s, align %d", d, io, align), trace(t, openEngine(t, dir, o)), want)
				o.Mode, o.KMax = ModeSparse, 448
				sameBits(t, fmt.Sprintf("sparse with every neuron, d = %d, %s, align %d", d, io, align), trace(t, openEngine(t, dir, o)), want)
			}
		}
	}
}

// TestLaw2 holds that sparse output depends on the active sets alone: not on queue depth, staging, gaps, backend,
// threads, nor on what was resident before.
func TestLaw2(t *testing.T) {
	dir := buildBundle(t, 0)
	run := func(o Options, warm bool) []float32 {
		o.Mode, o.Dense, o.KMax = ModeSparse, 2, 300
		e := openEngine(t, dir, o)
		random := &randomSelector{r: rand.New(rand.NewPCG(9, 9)), pins: []int32{3, 70}}
		e.selector = random
		if warm {
			trace(t, e)
			random.r = rand.New(rand.NewPCG(9, 9))
		}
		return trace(t, e)
	}
	want := run(Options{}, false)
	for name, o := range map[string]Options{
		"depth 4":        {Storage: storage.Options{QueueDepth: 4}},
		"staging of 1":   {Storage: storage.Options{QueueDepth: 1, Staging: 4096}},
		"gap of 64 KiB":  {Storage: storage.Options{Gap: 1 << 16}},
		"pread":          {Storage: storage.Options{Backend: "pread"}},
		"page cache":     {Storage: storage.Options{Direct: "off"}},
		"1 thread":       {Threads: 1},
		"3 threads":      {Threads: 3},
		"small context":  {Context: 64},
		"pread, depth 1": {Storage: storage.Options{Backend: "pread", QueueDepth: 1}},
	} {
		sameBits(t, name, run(o, false), want)
	}
	sameBits(t, "a warm start", run(Options{}, true), want)
}

// TestSparseIsTheSubset compares a sparse step with a brute-force one that computes exactly the active neurons of a
// resident model.
func TestSparseIsTheSubset(t *testing.T) {
	dir := buildBundle(t, 0)
	e := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 2, KMax: 300})
	e.selector = &randomSelector{r: rand.New(rand.NewPCG(4, 4)), pins: []int32{3, 70}}
	ref := openEngine(t, dir, Options{Mode: ModeResident})
	prompt := script[0].prompt
	for _, x := range []*Engine{e, ref} {
		if _, err := x.Prefill(context.Background(), prompt); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range script[0].steps {
		got, err := e.Step(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		s, x, pos := ref.step1, ref.x, ref.kv.Len
		ref.m.EmbedTokens(x, []int32{id})
		for l, layer := range ref.m.Layers {
			s.Attention(layer, x, ref.kv.Layers[l], pos)
			s.BeginMLP(layer, x)
			off := ref.denseOff
			if e.sparse[l] != nil {
				off = nil
				for _, n := range e.sparse[l].active {
					off = append(off, ref.denseOff[n])
				}
				if len(off) != 300 || !slices.IsSorted(off) {
					t.Fatalf("layer %d: active set of %d", l, len(off))
				}
			}
			s.MLPRows(ref.dense[l].Mem, off)
			s.EndMLP(x)
		}
		s.Logits(ref.logits, x)
		ref.kv.Len++
		sameBits(t, fmt.Sprintf("token at %d", pos), got, ref.logits)
	}
}

// checkMaps holds law 3: the slot map is one to one and every slot's bytes are the record it claims.
func checkMaps(t *testing.T, e *Engine) {
	t.Helper()
	for l, s := range e.sparse {
		if s == nil {
			continue
		}
		used := 0
		for n := range e.geometry.Neurons {
			slot := s.slotMap.Slot(int32(n))
			if slot < 0 {
				continue
			}
			used++
			if s.slotMap.Neuron(slot) != int32(n) {
				t.Fatalf("layer %d: neuron %d says slot %d, which holds %d", l, n, slot, s.slotMap.Neuron(slot))
			}
			stride := e.geometry.Stride
			if err := e.checkRecord(l, n, s.slots[int(slot)*stride:(int(slot)+1)*stride]); err != nil {
				t.Fatalf("layer %d slot %d: %v", l, slot, err)
			}
		}
		if used != s.slotMap.Len() {
			t.Fatalf("layer %d: %d neurons have a slot, the map counts %d", l, used, s.slotMap.Len())
		}
	}
}

// TestLaw3And4 runs random tokens and holds the slot maps against their bytes, the row counts against each other and
// the bytes against the kernel's counters.
func TestLaw3And4(t *testing.T) {
	dir := buildBundle(t, 0)
	for _, backend := range []string{"uring", "pread"} {
		e := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 1, KMax: 200, Storage: storage.Options{Backend: backend, Direct: "require"}})
		random := &randomSelector{r: rand.New(rand.NewPCG(4, 4))}
		e.selector = random
		r := rand.New(rand.NewPCG(5, 5))
		if _, err := e.Prefill(context.Background(), script[0].prompt); err != nil {
			t.Fatal(err)
		}
		kernel, counted := readBytes(t), e.reader.Stats().Bytes
		for range 40 {
			if r.IntN(3) == 0 { // repeat the last scores now and then
				random.r = rand.New(rand.NewPCG(4, 4))
			}
			if _, err := e.Step(context.Background(), int32(r.IntN(1024))); err != nil {
				t.Fatal(err)
			}
			checkMaps(t, e)
		}
		st := e.Stats()
		if st.Needed != 40*5*200 || st.Read <= 0 || st.Read >= st.Needed {
			t.Errorf("%s: %d rows needed, %d read", backend, st.Needed, st.Read)
		}
		if st.StepIO.Wanted != st.Read*int64(e.geometry.Stride) {
			t.Errorf("%s: %d bytes wanted for %d rows of %d", backend, st.StepIO.Wanted, st.Read, e.geometry.Stride)
		}
		if k, c := readBytes(t)-kernel, e.reader.Stats().Bytes-counted; k != c || c != st.StepIO.Bytes {
			t.Errorf("%s: the kernel read %d bytes, the reader counts %d, the steps %d", backend, k, c, st.StepIO.Bytes)
		}
		e.Close()
	}
}

func readBytes(t *testing.T) int64 {
	t.Helper()
	n, ok := keyValue("/proc/self/io", "read_bytes:")
	if !ok {
		t.Fatal("/proc/self/io has no read_bytes")
	}
	return n
}

// TestFailedRead truncates the rows under a running engine: the step fails and names layer, neuron and offset, the maps
// stay true, and with the file whole again the same engine goes on with the same output as one that never failed.
func TestFailedRead(t *testing.T) {
	dir := buildBundle(t, 0)
	for _, backend := range []string{"uring", "pread"} {
		o := Options{Mode: ModeSparse, Dense: 2, KMax: 200, Storage: storage.Options{Backend: backend}}
		e, ref := openEngine(t, dir, o), openEngine(t, dir, o)
		var outs [2][]float32
		for i, x := range []*Engine{e, ref} {
			random := &randomSelector{r: rand.New(rand.NewPCG(6, 6))}
			x.selector = random
			if _, err := x.Prefill(context.Background(), script[0].prompt); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				whole, err := os.ReadFile(x.Bundle.Path("rows.np"))
				if err != nil {
					t.Fatal(err)
				}
				at := x.geometry.RecordOffset(4, 100)
				if err := os.Truncate(x.Bundle.Path("rows.np"), at); err != nil {
					t.Fatal(err)
				}
				before := x.Len()
				_, err = x.Step(context.Background(), 515)
				if err == nil || !strings.Contains(err.Error(), "layer 4 neuron") || !strings.Contains(err.Error(), "offset") {
					t.Errorf("%s: error is %v", backend, err)
				}
				if x.Len() != before {
					t.Errorf("%s: the failed token is in the sequence", backend)
				}
				checkMaps(t, x)
				f, err := os.OpenFile(x.Bundle.Path("rows.np"), os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt(whole[at:], at); err != nil {
					t.Fatal(err)
				}
				f.Close()
				random.r = rand.New(rand.NewPCG(6, 6))
			}
			for _, id := range script[0].steps {
				l, err := x.Step(context.Background(), id)
				if err != nil {
					t.Fatal(err)
				}
				outs[i] = append(outs[i], l...)
			}
			checkMaps(t, x)
		}
		sameBits(t, backend+" after a failure", outs[0], outs[1])
	}
}

// TestDamagedRecord flips a byte on disk: the read is refused by name and the damaged row is not taken for resident.
func TestDamagedRecord(t *testing.T) {
	for _, align := range []int{0, 4096} {
		dir := buildBundle(t, align)
		e := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 2, KMax: 448})
		f, err := os.OpenFile(e.Bundle.Path("rows.np"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		at := e.geometry.RecordOffset(3, 17) + 5
		var b [1]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{b[0] ^ 1}, at); err != nil {
			t.Fatal(err)
		}
		_, err = e.Prefill(context.Background(), script[0].prompt)
		if err == nil || !strings.Contains(err.Error(), "layer 3") || !strings.Contains(err.Error(), "neuron 17") || !strings.Contains(err.Error(), e.Bundle.Path("rows.np")) {
			t.Errorf("align %d: error is %v", align, err)
		}
		checkMaps(t, e)
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Prefill(context.Background(), script[0].prompt); err != nil {
			t.Error(err)
		}
		checkMaps(t, e)
	}
}

// TestStepDoesNotAllocate pins that generation allocates nothing per token, in every mode.
func TestStepDoesNotAllocate(t *testing.T) {
	dir := buildBundle(t, 0)
	for _, o := range []Options{{Mode: ModeResident}, {Mode: ModeStream, Dense: 2}, {Mode: ModeSparse, Dense: 2, KMax: 200}} {
		e := openEngine(t, dir, o)
		if e.selector != nil {
			e.selector = &randomSelector{r: rand.New(rand.NewPCG(6, 6))}
		}
		if _, err := e.Prefill(context.Background(), script[0].prompt); err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		if n := testing.AllocsPerRun(50, func() {
			if _, err := e.Step(ctx, 5); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: a token allocates %v times", o.Mode, n)
		}
	}
}

// TestCancelled cancels in the middle of tokens and prompts; the engine then gives what a fresh one gives.
func TestCancelled(t *testing.T) {
	dir := buildBundle(t, 0)
	for _, o := range []Options{{Mode: ModeResident}, {Mode: ModeStream, Dense: 2}, {Mode: ModeSparse, Dense: 2, KMax: 448}} {
		e := openEngine(t, dir, o)
		want := trace(t, openEngine(t, dir, o))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := e.Prefill(ctx, script[0].prompt); err != context.Canceled {
			t.Errorf("%s: prefill: %v", o.Mode, err)
		}
		for i := range 5 {
			c := &countdown{Context: context.Background(), n: i}
			if _, err := e.Prefill(context.Background(), []int32{5, 6}); err != nil {
				t.Fatal(err)
			}
			if _, err := e.Step(c, 7); err != context.Canceled {
				t.Errorf("%s: step: %v", o.Mode, err)
			}
			if e.Len() != 2*(i+1) {
				t.Errorf("%s: %d tokens after a cancelled one", o.Mode, e.Len())
			}
			checkMaps(t, e)
		}
		sameBits(t, o.Mode+" after cancelling", trace(t, e), want)
	}
}

// countdown is a context that is cancelled after n looks at it.
type countdown struct {
	context.Context
	n int
}

func (c *countdown) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}
