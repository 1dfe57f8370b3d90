package storage

import (
	"bytes"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestRegister: reads that land in registered memory, beside it and across the end of it bring the file's bytes, whether the
// kernel takes the registration or not, and the ring uses it where it can.
func TestRegister(t *testing.T) {
	path := makeFile(t, t.TempDir(), 4<<20)
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page, n = 4096, 64
	for _, refuse := range []bool{false, true} {
		calls := kernelCalls
		calls.register = func(fd int, op uint32, arg unsafe.Pointer, n uint32) syscall.Errno {
			if op == registerBuffers && n > 1 && refuse {
				return unix.ENOMEM
			}
			return kernelCalls.register(fd, op, arg, n)
		}
		mem, free, err := AllocAligned(4 * n * page)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(free)
		r := openWith(t, path, Options{}, calls)
		if r.Info().Backend != "uring" {
			t.Skipf("NO IO_URING HERE: %v", r.Info().Notes)
		}
		err = r.Register([][]byte{mem[2*n*page : 3*n*page], mem[:n*page]}) // the second quarter and the last stay outside
		i := r.Info()
		if (err != nil) != refuse || i.InPlaceRegistered == refuse || !i.Registered {
			t.Fatalf("refused %v: %v, %+v", refuse, err, i)
		}
		b := &Batch{InPlace: true}
		for k := range 4 * n {
			at := k * page
			if k == n {
				at -= 512 // begins inside the first quarter, ends in the second
			}
			b.Items = append(b.Items, Item{Off: int64(k * 3 * page), Dst: mem[at+512 : (k+1)*page : (k+1)*page]})
		}
		r.Submit(b)
		if err := r.Wait(b); err != nil {
			t.Fatal(err)
		}
		for _, it := range b.Items {
			if !bytes.Equal(it.Dst, want[it.Off:][:len(it.Dst)]) {
				t.Errorf("refused %v: wrong bytes at offset %d", refuse, it.Off)
			}
		}
		if u := r.backend.(*uring); !refuse && (u.region(mem[:page]) == 0 || u.region(mem[n*page-512:n*page+512]) != 0 || u.region(mem[n*page:][:page]) != 0) {
			t.Error("memory is not told apart by what is registered")
		}
	}
}
