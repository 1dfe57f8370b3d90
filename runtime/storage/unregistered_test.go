package storage

import "testing"

// TestUnregistered: the option keeps file and buffers out of the ring, reads the same, and is no fallback to be noted.
func TestUnregistered(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20)
	for _, un := range []bool{false, true} {
		r := mustOpen(t, path, Options{Unregistered: un})
		u, ok := r.backend.(*uring)
		if !ok {
			t.Skipf("NO IO_URING HERE: %v", r.Info().Notes)
		}
		if u.fixedBuf == un || (u.fileFlag == 0) != un || r.Info().Registered == un {
			t.Errorf("unregistered %v: buffers registered %v, file flag %d", un, u.fixedBuf, u.fileFlag)
		}
		if len(r.Info().Notes) != 0 {
			t.Errorf("unregistered %v: notes %q", un, r.Info().Notes)
		}
		mustRead(t, r)
	}
}
