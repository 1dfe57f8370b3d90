package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"neuroprefetcher/format"
)

// However often writing is interrupted, and whatever an interruption leaves, the finished file is the same.
func TestRowsResume(t *testing.T) {
	both(t, func(t *testing.T, align int) {
		c := config(t)
		g := NewGeometry(c.Hidden, c.Intermediate, c.Layers, align)
		dir, _ := work(t, align)
		want, err := os.ReadFile(filepath.Join(dir, MemberRows))
		if err != nil {
			t.Fatal(err)
		}
		wantSide, _ := os.ReadFile(filepath.Join(dir, MemberRowsCRC))
		path := filepath.Join(dir, "again")
		notes := map[int]uint32{}
		r := rand.New(rand.NewPCG(7, 7))
		resumed, refused := 0, 0
		for round := 0; ; round++ {
			w, err := OpenRows(path, g)
			if err != nil {
				t.Fatal(err)
			}
			whole, killAt := true, -1
			if round < 12 {
				killAt = r.IntN(g.Layers)
			}
			for l := range g.Layers {
				crc, noted := notes[l]
				if noted {
					ok, err := w.Resume(l, crc)
					if err != nil {
						t.Fatal(err)
					}
					if ok {
						resumed++
						continue // a kill planned for this layer then comes never
					}
					refused++
				}
				if l == killAt {
					// killed in the middle of a layer
					if err := w.BeginLayer(l); err != nil {
						t.Fatal(err)
					}
					if err := w.PutRecords(make([]byte, 3*g.Stride)); err != nil {
						t.Fatal(err)
					}
					whole = false
					break
				}
				notes[l] = writeLayer(t, w, g, l, 1+r.IntN(9))
			}
			if whole && round < 12 {
				w.Close()
				continue
			}
			if whole {
				if _, err := w.Finish(filepath.Join(dir, "side")); err != nil {
					t.Fatal(err)
				}
				break
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			// and the drive may have lost or hurt what was noted
			switch r.IntN(3) {
			case 0:
				f, _ := os.OpenFile(path, os.O_RDWR, 0)
				f.WriteAt([]byte{0x5a, 0xa5}, g.RecordOffset(0, r.IntN(g.Neurons))+int64(r.IntN(g.Stride)))
				f.Close()
			case 1:
				os.Truncate(path, g.LayerOffset(1)+int64(r.IntN(int(g.LayerStride))))
			}
		}
		got, _ := os.ReadFile(path)
		side, _ := os.ReadFile(filepath.Join(dir, "side"))
		if !bytes.Equal(got, want) || !bytes.Equal(side, wantSide) {
			t.Error("resumed rows differ")
		}
		if resumed == 0 || refused == 0 {
			t.Errorf("%d layers resumed, %d refused: the test tests nothing", resumed, refused)
		}
	})
}

// A checksum of other content is not taken, though the block is in itself good.
func TestResumeTrustsOnlyTheNotedChecksum(t *testing.T) {
	both(t, func(t *testing.T, align int) {
		dir, m := work(t, align)
		w, err := OpenRows(filepath.Join(dir, MemberRows), m.Rows)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for l, crc := range m.LayerCRC {
			if ok, err := w.Resume(l, crc+1); ok || err != nil {
				t.Errorf("layer %d with another checksum: %v, %v", l, ok, err)
			}
			if ok, err := w.Resume(l, crc); !ok || err != nil {
				t.Errorf("layer %d: %v, %v", l, ok, err)
			}
		}
		if m.LayerCRC[0] == m.LayerCRC[1] {
			t.Error("layers of different content have the same checksum")
		}
	})
}

// A writer that failed once stays failed, and misuse is a failure, not a bad file.
func TestRowsWriterStaysFailed(t *testing.T) {
	g := NewGeometry(32, 20, 3, 0)
	misuse := map[string]func(w *RowsWriter) error{
		"records without a layer": func(w *RowsWriter) error { return w.PutRecords(make([]byte, g.Stride)) },
		"half a record":           func(w *RowsWriter) error { w.BeginLayer(0); return w.PutRecords(make([]byte, g.Stride/2)) },
		"too many records":        func(w *RowsWriter) error { w.BeginLayer(0); return w.PutRecords(make([]byte, 21*g.Stride)) },
		"layer ended early":       func(w *RowsWriter) error { w.BeginLayer(0); _, err := w.EndLayer(); return err },
		"layer begun twice":       func(w *RowsWriter) error { w.BeginLayer(0); return w.BeginLayer(1) },
		"layer out of range":      func(w *RowsWriter) error { return w.BeginLayer(3) },
		"finished early":          func(w *RowsWriter) error { _, err := w.Finish(""); return err },
		"closed file":             func(w *RowsWriter) error { w.f.Close(); w.BeginLayer(0); return w.PutRecords(make([]byte, g.Stride)) },
	}
	for name, f := range misuse {
		w, err := OpenRows(filepath.Join(t.TempDir(), "r"), g)
		if err != nil {
			t.Fatal(err)
		}
		first := f(w)
		if first == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if err := w.BeginLayer(1); err != first {
			t.Errorf("%s: afterwards %v, want %v", name, err, first)
		}
		if _, err := w.Finish(""); err != first {
			t.Errorf("%s: finished with %v", name, err)
		}
		w.Close()
	}
}

// Offsets of a full-size model, against the formula with big numbers written out.
func TestGeometryOfLargeModels(t *testing.T) {
	g := NewGeometry(8192, 28672, 80, 0)
	if g.Stride != 49664 || g.RecordOffset(79, 28671) != 4096+79*28672*49664+28671*49664 || g.FileSize() != 4096+80*28672*49664 {
		t.Errorf("%+v", g)
	}
	if err := g.Check("x"); err != nil {
		t.Error(err)
	}
	for _, h := range []int{1, 2, 31, 32, 64, 576, 2048, 4096, MaxHidden} {
		for _, m := range []int{1, 3, 7, 1536, 14336} {
			for _, a := range []int{0, 4096, 8192} {
				g := NewGeometry(h, m, 2, a)
				if err := g.Check(fmt.Sprint(h, m, a)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// Checks on the way to the slots allocate nothing.
func TestCheckRecordDoesNotAllocate(t *testing.T) {
	g := NewGeometry(64, 20, 3, 0)
	rec := make([]byte, g.Stride)
	PutRecordTrailer(g, 1, 2, rec)
	if n := testing.AllocsPerRun(100, func() {
		if CheckRecord(g, 1, 2, rec) != nil {
			t.Fatal("damaged")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The drive fills up while records are written: the error has wanted and available, and the writer stays failed.
// The test runs itself again in a mount namespace with a small file system.
func TestRowsWriterOnAFullDrive(t *testing.T) {
	if dir := os.Getenv("BUNDLE_TEST_FULL"); dir != "" {
		fullDrive(dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRowsWriterOnAFullDrive$")
	cmd.Env = append(os.Environ(), "BUNDLE_TEST_FULL="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "no mount") {
		t.Logf("no file system can be mounted here (%v): only the text of the error is tested", err)
		out = []byte("put: " + spaceError(t.TempDir()+"/r", 64<<10, fmt.Errorf("write: %w", syscall.ENOSPC)).Error() + "\nstays failed: true\nio: true\n")
	}
	for _, want := range []string{"no space: ", " wanted, ", " available", "stays failed: true", "io: true"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("does not say %q: %s", want, out)
		}
	}
}

// fullDrive is the other process: the room is there when the writer starts and gone when it writes.
func fullDrive(dir string) {
	syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=256k"); err != nil {
		fmt.Println("no mount:", err)
		return
	}
	g := NewGeometry(64, 100, 3, 0) // 156 KiB
	w, err := OpenRows(filepath.Join(dir, "r"), g)
	if err != nil {
		fmt.Println("open:", err)
		return
	}
	os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 200<<10), 0o666)
	for l := 0; l < g.Layers && err == nil; l++ {
		if err = w.BeginLayer(l); err == nil {
			err = w.PutRecords(make([]byte, g.Neurons*g.Stride))
		}
		if err == nil {
			_, err = w.EndLayer()
		}
	}
	fmt.Println("put:", err)
	_, again := w.Finish("")
	fmt.Println("stays failed:", err != nil && again == err)
	fmt.Println("io:", errors.Is(err, format.ErrIO))
}
