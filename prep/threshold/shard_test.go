package threshold

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/prep/calib"
	"neuroprefetcher/prep/stage"
)

// TestShards asks for the file and the report of one run from 1, 2, 3 and 5 shards, one of them interrupted.
func TestShards(t *testing.T) {
	o := Options{Checkpoint: open(t, tiny+"checkpoint"), Texts: []string{tiny + "calibration.txt"}, Tokens: 330, Window: 16, Group: 40}
	one := env(t, 2)
	want, err := Run(context.Background(), one, o)
	if err != nil {
		t.Fatal(err)
	}
	read := func(e *stage.Env) string {
		b, err := os.ReadFile(filepath.Join(e.Work, "threshold", calib.CountsFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, n := range []int{1, 2, 3, 5} {
		e := env(t, 1+n%2)
		for i := n; i >= 1; i-- {
			part := o
			part.Shard, part.Group = stage.Shard{I: i, N: n}, 16*(1+i%3)
			if i == 1 {
				if _, err := Run(&countdown{context.Background(), 12}, e, part); !errors.Is(err, context.Canceled) {
					t.Fatalf("interrupted shard: %v", err)
				}
				if _, err := Run(context.Background(), e, o); !errors.Is(err, format.ErrInput) {
					t.Fatalf("merged without shard 1: %v", err)
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
		if read(e) != read(one) || !reflect.DeepEqual(got.Values, want.Values) {
			t.Errorf("%d shards: other counters, or report %v, want %v", n, got.Values, want.Values)
		}
	}
	o.Shard = stage.Shard{I: 1, N: 22}
	if _, err := Run(context.Background(), env(t, 1), o); !errors.Is(err, format.ErrInput) {
		t.Errorf("22 shards of 21 windows: %v", err)
	}
}
