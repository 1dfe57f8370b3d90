package storage

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"neuroprefetcher/format"
)

// Tests on devices of their own. They need root, loop devices, and for the second the device mapper; where those are missing
// they say so.

func needRoot(t *testing.T, tools ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT ROOT: READING FROM A DEVICE OF ITS OWN IS NOT TESTED HERE")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("NO %s: READING FROM A DEVICE OF ITS OWN IS NOT TESTED HERE", strings.ToUpper(tool))
		}
	}
}

func command(t *testing.T, line ...string) (string, error) {
	t.Helper()
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %v: %s", strings.Join(line, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// loopDevice makes a block device of 64 MiB with that sector size on a file.
func loopDevice(t *testing.T, dir string, sector int) string {
	t.Helper()
	img := filepath.Join(dir, "img")
	if err := os.WriteFile(img, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, 64<<20); err != nil {
		t.Fatal(err)
	}
	dev, err := command(t, "losetup", "-f", "--show", "-b", fmt.Sprint(sector), img)
	if err != nil {
		t.Skipf("NO LOOP DEVICE: READING FROM A DEVICE OF ITS OWN IS NOT TESTED HERE: %v", err)
	}
	t.Cleanup(func() {
		if _, err := command(t, "losetup", "-d", dev); err != nil {
			t.Error(err)
		}
	})
	return dev
}

func mount(t *testing.T, dev, dir string) string {
	t.Helper()
	if _, err := command(t, "mkfs.ext4", "-q", dev); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "mnt")
	if err := os.Mkdir(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "mount", dev, at); err != nil {
		t.Skipf("NO MOUNT: READING FROM A DEVICE OF ITS OWN IS NOT TESTED HERE: %v", err)
	}
	t.Cleanup(func() {
		var err error
		for range 50 { // the kernel may hold the file a moment longer than we do
			if _, err = command(t, "umount", at); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Error(err)
	})
	return at
}

// TestSectors4096 reads 25,088-byte records, a multiple of 512 and not of 4,096, from a drive of 4,096-byte sectors.
func TestSectors4096(t *testing.T) {
	needRoot(t, "losetup", "mkfs.ext4", "mount")
	dir := t.TempDir()
	at := mount(t, loopDevice(t, dir, 4096), dir)
	path := makeFile(t, at, 4<<20+300)

	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	mem, free, err := AllocAligned(32 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	if _, err := unix.Pread(fd, mem[:25088], 25088); err != unix.EINVAL {
		t.Fatalf("an unwidened read gives %v here: this drive does not test what it should", err)
	}
	unix.Close(fd)

	const stride = 25088
	for _, backend := range backends {
		for _, staging := range []int{1, stride, 64 * stride} {
			for _, inPlace := range []bool{false, true} {
				r := mustOpen(t, path, Options{Backend: backend, Direct: "require", QueueDepth: 16, Staging: staging})
				if i := r.Info(); i.Align != 4096 || !i.Direct {
					t.Fatalf("%+v", i)
				}
				b := &Batch{InPlace: inPlace}
				lens := []int{}
				for n := 0; (n+1)*stride <= 4<<20; n += 1 + n%3 {
					b.Items, lens = append(b.Items, Item{Off: int64(n * stride)}), append(lens, stride)
				}
				b.Items, lens = append(b.Items, Item{Off: 4 << 20}), append(lens, 300)
				mem := make([]byte, total(lens))
				carve(mem, b.Items, lens, true)
				r.Submit(b)
				if err := r.Wait(b); err != nil {
					t.Fatal(err)
				}
				for i := range b.Items {
					if !b.Done[i] {
						t.Fatalf("item %d not done", i)
					}
				}
				if err := checkMem(mem, b); err != nil {
					t.Fatal(err)
				}
			}
			rep := runHelper(t, helperJob{Path: path, Seed: 5, Memlock: -1, Options: Options{Backend: backend, Staging: staging}}, nil)
			if rep.Error != "" || rep.Info.Align != 4096 {
				t.Errorf("random lists: %+v", rep)
			}
		}
	}
	if d, err := DriveOf(path); err != nil || !strings.HasPrefix(d.Device, "loop") || d.LogicalBlock != 4096 || d.FileSystem != "ext4" {
		t.Errorf("drive %+v %v", d, err)
	}
}

// TestBadSpot reads from a drive with unreadable sectors: the error is the drive's own, inside a completion. The bad spot is a
// device-mapper target where there is one; else the end of a loop device whose file was cut short, which answers EIO as well.
func TestBadSpot(t *testing.T) {
	needRoot(t, "losetup", "dmsetup")
	dir := t.TempDir()
	loop := loopDevice(t, dir, 512)
	data := make([]byte, 64<<20)
	fill(data, 0)
	if err := os.WriteFile(loop, data, 0o600); err != nil {
		t.Fatal(err)
	}
	const bad = 20000 * 512
	path, badEnd := mapBadSectors(t, loop, bad/512), int64(bad+8*512)
	if path == "" {
		path, badEnd = loop, 64<<20
		if err := os.Truncate(filepath.Join(dir, "img"), bad); err != nil {
			t.Fatal(err)
		}
	}
	t.Log("bad spot on ", path)
	for _, backend := range backends {
		r := mustOpen(t, path, Options{Backend: backend, Direct: "require", QueueDepth: 8})
		const stride = 25088
		first := &Batch{}
		lens := []int{}
		for n := 300; n < 600; n += 2 {
			first.Items, lens = append(first.Items, Item{Off: int64(n * stride)}), append(lens, stride)
		}
		mem := make([]byte, total(lens))
		carve(mem, first.Items, lens, false)
		next := &Batch{Items: []Item{{4 << 20, make([]byte, stride)}}}
		r.Submit(first)
		r.Submit(next)
		err := r.Wait(first)
		if !errors.Is(err, unix.EIO) || !errors.Is(err, format.ErrIO) || !strings.Contains(err.Error(), path+" at offset ") {
			t.Errorf("%s: error %v", backend, err)
		}
		for i, it := range first.Items {
			hit := it.Off < badEnd && it.Off+stride > bad
			if hit && first.Done[i] || it.Off+stride <= bad && !first.Done[i] {
				t.Errorf("%s: item at %d: done %v", backend, it.Off, first.Done[i])
			}
		}
		if err := checkMem(mem, first); err != nil {
			t.Errorf("%s: %v", backend, err)
		}
		if err := r.Wait(next); err != nil || !next.Done[0] {
			t.Errorf("%s: the batch after: %v", backend, err)
		}
	}
}

// mapBadSectors puts a device with 8 bad sectors over dev; "" where the kernel has no device mapper.
func mapBadSectors(t *testing.T, dev string, bad int) string {
	t.Helper()
	name := fmt.Sprintf("np-test-%d", os.Getpid())
	cmd := exec.Command("dmsetup", "create", name)
	cmd.Stdin = strings.NewReader(fmt.Sprintf("0 %d linear %s 0\n%d 8 error\n%d %d linear %s %d\n",
		bad, dev, bad, bad+8, 64<<11-bad-8, dev, bad+8))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Logf("no device mapper: %v %s", err, out)
		return ""
	}
	t.Cleanup(func() {
		if _, err := command(t, "dmsetup", "remove", "--retry", name); err != nil {
			t.Error(err)
		}
	})
	if _, err := command(t, "dmsetup", "mknodes", name); err != nil {
		t.Fatal(err)
	}
	return "/dev/mapper/" + name
}
