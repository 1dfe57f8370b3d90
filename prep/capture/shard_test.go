package capture

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"neuroprefetcher/prep/stage"
)

// TestShards asks for the files and the report of one run from 1, 2, 3 and 5 shards, one of them interrupted.
func TestShards(t *testing.T) {
	o := options(t)
	o.Tokens, o.Part = 150, 16
	one := env(t, 2, o)
	report, err := Run(context.Background(), one, o)
	if err != nil {
		t.Fatal(err)
	}
	want := files(t, one.Work)
	if len(want) != 2*10+1 {
		t.Fatalf("%d files", len(want))
	}
	for _, n := range []int{1, 2, 3, 5} {
		e := env(t, 1+n%2, o)
		for i := n; i >= 1; i-- {
			part := o
			part.Shard = stage.Shard{I: i, N: n}
			for looks := 4; i == 1; looks++ { // interrupted ever later, until a part is done
				if _, err := Run(&countdown{context.Background(), looks}, e, part); !errors.Is(err, context.Canceled) {
					t.Fatalf("interrupted shard: %v", err)
				}
				if left, _ := filepath.Glob(filepath.Join(e.Work, "capture.1of*", "masks-*")); len(left) == 1 {
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
		if !reflect.DeepEqual(files(t, e.Work), want) || !reflect.DeepEqual(got.Values, report.Values) {
			t.Errorf("%d shards: other bytes, or report %v, want %v", n, got.Values, report.Values)
		}
	}
}
