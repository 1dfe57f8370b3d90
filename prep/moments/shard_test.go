package moments

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"testing"

	"neuroprefetcher/prep/stage"
)

// TestShards asks for the files and the report of one run from 1, 2, 3 and 5 shards, however each is cut into parts, and
// one of them interrupted.
func TestShards(t *testing.T) {
	o, one := options(t), env(t, 2)
	o.Tokens = 200
	report, err := Run(context.Background(), one, o)
	if err != nil {
		t.Fatal(err)
	}
	want := read(t, one)
	for _, n := range []int{1, 2, 3, 5} {
		e := env(t, 1+n%2)
		for i := n; i >= 1; i-- {
			part := o
			part.Shard, part.Part = stage.Shard{I: i, N: n}, 16*(1+i%3)
			for looks := 4; i == 1 && n < 5; looks++ { // interrupted ever later, until a part is done
				if _, err := Run(&countdown{context.Background(), looks}, e, part); !errors.Is(err, context.Canceled) {
					t.Fatalf("interrupted shard: %v", err)
				}
				if left, _ := filepath.Glob(filepath.Join(e.Work, "moments.1of*", ".total-*")); len(left) == 1 {
					break
				}
			}
			if _, err := Run(context.Background(), e, part); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Run(context.Background(), e, o)
		if err != nil {
			t.Fatal(err)
		}
		if read(t, e) != want || !reflect.DeepEqual(got.Values, report.Values) {
			t.Errorf("%d shards: other bytes, or report %v, want %v", n, got.Values, report.Values)
		}
	}
}

// TestGrid asks that sums of rounded products are the same in any order at the largest sizes, and that the rounding is
// below what float32 rounds.
func TestGrid(t *testing.T) {
	const tokens, hidden, block = 196_608, 4096, 512
	g := gridFor(tokens, hidden)
	if g.step > 1.0/(1<<22) {
		t.Errorf("step %v", g.step)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float64, tokens/block)
	for i := range v {
		x := float32(block * hidden * (0.9 + 0.1*rng.Float64())) // as large as the bound allows, all of one sign
		if i%3 == 0 {
			x = float32(20 * rng.NormFloat64())
		}
		v[i] = g.round(float64(x))
		if math.Abs(v[i]-float64(x)) > g.step/2 {
			t.Fatalf("%v is rounded to %v", x, v[i])
		}
	}
	sum := func() (s float64) {
		for _, x := range v {
			s += x
		}
		return s
	}
	want := sum()
	for range 20 {
		rng.Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
		if got := sum(); got != want {
			t.Fatalf("%v in another order, not %v", got, want)
		}
	}
}
