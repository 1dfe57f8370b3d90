package storage

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Drive describes the block device under a path, as sysfs tells it.
type Drive struct {
	Device        string // kernel name, "nvme0n1"; where there is no device the file system's type, "tmpfs"
	Model         string // as the drive reports it; may be empty
	FileSystem    string // "ext4"; may be empty
	Rotational    bool   // what the kernel believes; virtual disks often say so wrongly
	LogicalBlock  int    // bytes; 0 unknown
	PhysicalBlock int    // bytes; 0 unknown
}

// DriveOf finds the drive that holds path. Only a path that cannot be looked at is an error; what sysfs does not tell stays zero.
func DriveOf(path string) (Drive, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return Drive{}, ioError(path, err)
	}
	dev := uint64(st.Dev)
	var d Drive
	source := ""
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = uint64(st.Rdev)
	} else {
		d.FileSystem, source = mountOf(dev)
	}
	sys := sysBlock(dev)
	if sys == "" && strings.HasPrefix(source, "/dev/") { // btrfs and such show a device number of their own
		if unix.Stat(source, &st) == nil {
			sys = sysBlock(uint64(st.Rdev))
		}
	}
	if sys == "" {
		d.Device = d.FileSystem
		return d, nil
	}
	d.Device = filepath.Base(sys)
	d.Model = sysText(sys, "device/model")
	d.Rotational = sysText(sys, "queue/rotational") == "1"
	d.LogicalBlock, _ = strconv.Atoi(sysText(sys, "queue/logical_block_size"))
	d.PhysicalBlock, _ = strconv.Atoi(sysText(sys, "queue/physical_block_size"))
	return d, nil
}

// sysBlock returns the sysfs folder of the whole disk with that device number; "" if there is none.
func sysBlock(dev uint64) string {
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	return dir
}

func sysText(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// mountOf finds type and source of the file system with that device number in /proc/self/mountinfo:
// id parent major:minor root mountpoint options [optional…] - type source superoptions
func mountOf(dev uint64) (fstype, source string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", ""
	}
	defer f.Close()
	want := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for sc := bufio.NewScanner(f); sc.Scan(); {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		if h := strings.Fields(head); !ok || len(h) < 3 || h[2] != want {
			continue
		}
		if t := strings.Fields(tail); len(t) >= 2 {
			return t[0], t[1]
		}
	}
	return "", ""
}
