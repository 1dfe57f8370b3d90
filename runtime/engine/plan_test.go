package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/predictor"
)

// flip changes one bit of a record on disk, past its first byte, and returns what undoes it.
func flip(t *testing.T, e *Engine, layer, neuron int) func() {
	t.Helper()
	f, err := os.OpenFile(e.Bundle.Path(bundle.MemberRows), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	at := e.geometry.RecordOffset(layer, neuron) + 5
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	write := func(v byte) {
		if _, err := f.WriteAt([]byte{v}, at); err != nil {
			t.Fatal(err)
		}
	}
	write(b[0] ^ 1)
	return func() { write(b[0]) }
}

// TestDamagedStream flips a bit of a layer that is read whole: prompts and tokens are refused by name, the first of
// several damaged records is named, and the engine goes on when the file is good again.
func TestDamagedStream(t *testing.T) {
	ctx := context.Background()
	for _, align := range []int{0, 4096} {
		dir := buildBundle(t, align)
		for _, o := range []Options{{Mode: ModeStream, Dense: 2}, {Mode: ModeSparse, Dense: 2, KMax: 10}} {
			e := openEngine(t, dir, o)
			want := trace(t, e)
			e.Reset()
			if _, err := e.Prefill(ctx, script[0].prompt); err != nil {
				t.Fatal(err)
			}
			undo := []func(){flip(t, e, 3, 417), flip(t, e, 3, 300)}
			named := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), "layer 3, neuron 300") {
					t.Errorf("%s, align %d, %s: error is %v", o.Mode, align, what, err)
				}
			}
			if o.Mode == ModeStream {
				// Chunks may have been read ahead: of the first tokens, one must meet the damage.
				_, err := e.Step(ctx, 5)
				if err == nil {
					_, err = e.Step(ctx, 5)
				}
				named("step", err)
			}
			_, err := e.Prefill(ctx, script[0].prompt)
			named("prompt", err)
			for _, f := range undo {
				f()
			}
			sameBits(t, o.Mode+" after damage", trace(t, e), want)
		}
	}
}

// TestOptionsAgainstTheBundle holds that what the bundle cannot do is refused, not silently made smaller.
func TestOptionsAgainstTheBundle(t *testing.T) {
	dir := buildBundle(t, 0)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Mode: ModeSparse, KMax: 449}, "--k-max 449: a layer has 448 neurons"},
		{Options{Mode: ModeSparse, KMax: 1, Dense: 2}, "pinned"},
		{Options{Mode: ModeSparse, Dense: 7}, "--dense-layers 7: the model has 6 layers"},
		{Options{Mode: ModeResident, Dense: 5}, "--dense-layers 5: resident"},
		{Options{Context: 513}, "--context 513: the model is made for at most 512 tokens"},
		{Options{Selector: "paper"}, "--selector paper"},
		{Options{Mode: "fast"}, "--mode fast"},
		{Options{Mode: ModeSparse, ReadBudget: 1000}, "--read-budget 1000 B"},
	} {
		e, err := Open(context.Background(), dir, c.o)
		if e != nil || !errors.Is(err, format.ErrInput) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	for _, o := range []Options{{Mode: ModeSparse, Dense: 6}, {Mode: ModeStream, Dense: 6}, {Mode: ModeResident, Dense: 6}, {Mode: ModeSparse, KMax: 448, Context: 1}} {
		e := openEngine(t, dir, o)
		if _, err := e.Prefill(context.Background(), []int32{5}); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestReadBudget: once the slots are full no token reads more than it may, and with enough of a budget the sets are those of
// a run without one.
func TestReadBudget(t *testing.T) {
	dir := buildBundle(t, 0)
	wrap := func(predictor.Selector, *Plan) (predictor.Selector, error) {
		return &randomSelector{r: rand.New(rand.NewPCG(5, 5))}, nil
	}
	free := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 2, KMax: 200, Wrap: wrap})
	const rows = 7
	g := free.geometry
	budget := int64(4*rows*g.Stride) + 11 // four sparse layers
	tight := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 2, KMax: 200, Wrap: wrap, ReadBudget: budget})
	wide := openEngine(t, dir, Options{Mode: ModeSparse, Dense: 2, KMax: 200, Wrap: wrap, ReadBudget: int64(4 * 200 * g.Stride)})
	if p := tight.Plan; p.ReadCap != rows || p.ReadsPerToken > budget {
		t.Errorf("plan: %d rows, %d bytes", p.ReadCap, p.ReadsPerToken)
	}
	for _, e := range []*Engine{free, tight, wide} {
		if _, err := e.Prefill(context.Background(), script[0].prompt); err != nil {
			t.Fatal(err)
		}
	}
	for id := range int32(8) {
		before := tight.Stats()
		for _, e := range []*Engine{free, tight, wide} {
			if _, err := e.Step(context.Background(), 5+id); err != nil {
				t.Fatal(err)
			}
		}
		after := tight.Stats()
		if n := after.StepIO.Wanted - before.StepIO.Wanted; n > budget || after.Read-before.Read != 4*rows {
			t.Errorf("token %d: %d bytes, %d rows", id, n, after.Read-before.Read)
		}
		for l := 2; l < 6; l++ {
			if !slices.Equal(free.Active(l), wide.Active(l)) {
				t.Errorf("token %d, layer %d: a budget that does not bind changes the set", id, l)
			}
		}
	}
}

// TestBudget holds what was asked for against what there is: the kernel must not be the one to say it.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		asked, base, free, want int64
		source                  string
	}{
		{0, 10, 100, 100, "nine tenths of here"},
		{50, 10, 100, 50, "--memory"},
		{110, 10, 100, 110, "--memory"},
		{111, 10, 100, 110, "here, less than --memory"},
	} {
		if got, source := budget(c.asked, c.base, c.free, "here"); got != c.want || source != c.source {
			t.Errorf("%+v: %d, %s", c, got, source)
		}
	}
}

// TestStreamKeepsRowsOfEveryLayer: where the budget holds some layers, stream mode keeps the first rows of every layer instead,
// no more bytes than those layers had, and gives the bits of resident mode.
func TestStreamKeepsRowsOfEveryLayer(t *testing.T) {
	for _, align := range []int{0, 4096} {
		dir := buildBundle(t, align)
		want := trace(t, openEngine(t, dir, Options{Mode: ModeResident}))
		b, err := bundle.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[[2]int]bool{}
		for whole := 3; whole < 6; whole++ {
			p, err := newPlanner(b, Options{Mode: ModeStream, Context: 256}, 2)
			if err != nil {
				t.Fatal(err)
			}
			old := p.plan(ModeStream, whole, 0, 256, 64)
			got := p.level(old)
			if got.Total > old.Total || got.ReadsPerToken > old.ReadsPerToken*5/4+int64(6*256*p.g.Stride) {
				t.Errorf("%d layers: %d bytes and %d read, after %d and %d", whole, got.Total, got.ReadsPerToken, old.Total, old.ReadsPerToken)
			}
			o := Options{Mode: ModeStream, Context: 256, Memory: old.Total + 256<<10}
			e, err := Open(context.Background(), dir, o)
			if err != nil {
				continue // the process has grown since the plan
			}
			seen[[2]int{e.Plan.Dense, e.Plan.Rows}] = true
			if !slices.Equal(trace(t, e), want) {
				t.Errorf("align %d, %d whole layers and %d rows of the others: other logits than resident", align, e.Plan.Dense, e.Plan.Rows)
			}
			e.Close()
		}
		rows := false
		for s := range seen {
			rows = rows || s[1] > 0
		}
		if !rows {
			t.Errorf("align %d: no run kept rows of every layer: %v", align, seen)
		}
	}
}

// TestPlansKeepTheirOrder holds what a plan gives up first as memory shrinks: layers, then the size of micro-batches
// below enoughTokens, then context; and that Plans chooses what Open would.
func TestPlansKeepTheirOrder(t *testing.T) {
	b, err := bundle.Open(buildBundle(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPlanner(b, Options{Mode: ModeStream}, 2)
	if err != nil {
		t.Fatal(err)
	}
	p.base = 0
	held := func(pl *Plan) int { return pl.Dense*448 + (6-pl.Dense)*pl.Rows }
	last := &Plan{Dense: 6, Microbatch: 512, Context: 512}
	for mem := p.plan(ModeStream, 6, 0, 512, 512).Total; ; mem -= 16 << 10 {
		p.budget = mem
		pl, err := p.choose()
		if err != nil {
			if least := p.plan(ModeStream, 0, 0, 512, 16).Total; mem >= least {
				t.Errorf("refused with %d, %d is enough: %v", mem, least, err)
			}
			break
		}
		if pl.Total > mem {
			t.Fatalf("a plan of %d for %d", pl.Total, mem)
		}
		small := pl.Microbatch < enoughTokens && held(pl) > 0 && p.plan(ModeStream, 0, 0, pl.Context, enoughTokens).fits()
		if held(pl) > held(last) && last.Microbatch >= enoughTokens == (pl.Microbatch >= enoughTokens) || small {
			t.Fatalf("%d rows in memory, micro-batch %d, after %d and %d", held(pl), pl.Microbatch, held(last), last.Microbatch)
		}
		last = pl
	}
	if held(last) != 0 || last.Microbatch != 16 {
		t.Errorf("the last plan has %d rows and micro-batch %d", held(last), last.Microbatch)
	}
}

// TestSparseLayersBeforeContext: below the dense prefix that the bundle was made for, sparse mode gives up context before layers,
// and says so where it has to give up layers too.
func TestSparseLayersBeforeContext(t *testing.T) {
	b, err := bundle.Open(buildBundle(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	const made = 4
	b.Manifest.Sparse.DefaultDense, b.Manifest.Model.MaxPositions = made, 4096
	p, err := newPlanner(b, Options{Mode: ModeSparse}, 2)
	if err != nil {
		t.Fatal(err)
	}
	p.base = 0
	short, few := false, false
	for mem := p.plan(ModeSparse, made, 0, 2048, 128).Total; ; mem -= 32 << 10 {
		p.budget = mem
		pl, err := p.choose()
		if err != nil {
			break
		}
		for _, context := range []int{2048, 1024, 512} {
			for d := 1; d <= made; d++ {
				if p.plan(ModeSparse, d, 0, context, min(pl.Microbatch, enoughTokens)).fits() && (d > pl.Dense && pl.Dense < made || d >= min(pl.Dense, made) && context > pl.Context) {
					t.Fatalf("%d bytes: d = %d and context %d, though %d and %d fit", mem, pl.Dense, pl.Context, d, context)
				}
			}
		}
		if told := strings.Contains(pl.Note, "below the 4"); told != (pl.Dense < made) {
			t.Errorf("d = %d: note %q", pl.Dense, pl.Note)
		}
		short, few = short || pl.Context < 2048, few || pl.Dense < made
	}
	if !short || !few {
		t.Errorf("no plan had a shorter context: %v, fewer layers: %v", !short, !few)
	}
}
