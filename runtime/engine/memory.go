package engine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// AvailableMemory is what this process may use in addition to what it already holds: the smallest of MemAvailable and,
// for every control group from ours to the root, its limit minus what it uses and cannot give back. source names which.
func AvailableMemory() (bytes int64, source string) {
	return availableMemory("/proc", "/sys/fs/cgroup")
}

func availableMemory(proc, cgroups string) (int64, string) {
	best, source := int64(1)<<62, "no limit found"
	if v, ok := keyValue(filepath.Join(proc, "meminfo"), "MemAvailable:"); ok {
		best, source = v*1024, "MemAvailable of the machine"
	}
	data, err := os.ReadFile(filepath.Join(proc, "self", "cgroup"))
	if err != nil {
		return best, source
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		part := strings.SplitN(line, ":", 3)
		if len(part) != 3 {
			continue
		}
		var root, limitFile, useFile, reclaimKey string
		switch {
		case part[0] == "0" && part[1] == "": // version 2
			root, limitFile, useFile, reclaimKey = cgroups, "memory.max", "memory.current", "inactive_file"
			if _, err := os.Stat(filepath.Join(cgroups, "unified")); err == nil {
				root = filepath.Join(cgroups, "unified")
			}
		case hasWord(part[1], "memory"): // version 1
			root, limitFile, useFile, reclaimKey = filepath.Join(cgroups, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		default:
			continue
		}
		for dir := filepath.Clean("/" + part[2]); ; dir = filepath.Dir(dir) {
			at := filepath.Join(root, dir)
			limit, ok := number(filepath.Join(at, limitFile))
			if ok && limit < 1<<60 {
				used, _ := number(filepath.Join(at, useFile))
				reclaim, _ := keyValue(filepath.Join(at, "memory.stat"), reclaimKey)
				active, _ := keyValue(filepath.Join(at, "memory.stat"), strings.Replace(reclaimKey, "inactive", "active", 1))
				if left := max(limit-max(used-reclaim-active, 0), 0); left < best {
					best, source = left, "control group limit "+filepath.Join(at, limitFile)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return best, source
}

func hasWord(list, word string) bool {
	for _, w := range strings.Split(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// number reads a file that holds one integer; "max" and a missing file are no limit.
func number(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil
}

// keyValue finds "key value ..." in a file of such lines.
func keyValue(path, key string) (int64, bool) {
	f, err := os.Open(path)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if w := strings.Fields(s.Text()); len(w) >= 2 && w[0] == key {
			v, err := strconv.ParseInt(w[1], 10, 64)
			return v, err == nil
		}
	}
	return 0, false
}

// RSS returns the process's resident memory now and its peak, in bytes.
func RSS() (now, peak int64) {
	n, _ := keyValue("/proc/self/status", "VmRSS:")
	p, _ := keyValue("/proc/self/status", "VmHWM:")
	return n * 1024, p * 1024
}

// size formats bytes as MiB with one decimal or GiB with two; what is next to nothing as bytes.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n < 1<<16:
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
