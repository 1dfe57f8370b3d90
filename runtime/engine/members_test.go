package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
)

// TestDamagedMembers flips a bit in the values of each member that has no checksums of its own: Open refuses and names
// the member instead of computing with it.
func TestDamagedMembers(t *testing.T) {
	for _, member := range []string{bundle.MemberResident, bundle.MemberCentroids, bundle.MemberRowsCRC} {
		dir := buildBundle(t, 4096)
		path := dir + "/" + member
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)-3] ^= 1
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		e, err := Open(context.Background(), dir, Options{Mode: ModeSparse, Dense: 2, Memory: 1 << 30, Context: 64})
		if err == nil {
			e.Close()
		}
		if !errors.Is(err, format.ErrCorrupt) || !strings.Contains(err.Error(), member) {
			t.Errorf("%s: error is %v", member, err)
		}
	}
}
