package measure

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Host is what the kernel says about memory and limits. Sizes are bytes; −1 is unknown or, of a limit, none.
type Host struct {
	MemTotal, MemAvailable, SwapTotal, SwapFree int64
	HugePages                                   string // of transparent huge pages: always, madvise, never, or ""
	Groups                                      Groups
}

// Groups are the control groups that bound the memory of this process.
type Groups struct {
	Version int    // 2, 1, or 0 where there are none
	Limit   int64  // the smallest from our own group to the root
	Used    int64  // by the group of that limit, page cache included; where there is no limit, by our own
	Path    string // of that group
}

// ReadHost looks at the machine.
func ReadHost() Host { return readHost("/proc", "/sys") }

func readHost(proc, sys string) Host {
	h := Host{MemTotal: -1, MemAvailable: -1, SwapTotal: -1, SwapFree: -1}
	keys := readKeys(filepath.Join(proc, "meminfo"))
	for name, p := range map[string]*int64{"MemTotal:": &h.MemTotal, "MemAvailable:": &h.MemAvailable, "SwapTotal:": &h.SwapTotal, "SwapFree:": &h.SwapFree} {
		if v, ok := keys[name]; ok {
			*p = v * 1024
		}
	}
	if b, err := os.ReadFile(filepath.Join(sys, "kernel/mm/transparent_hugepage/enabled")); err == nil {
		_, rest, _ := strings.Cut(string(b), "[")
		h.HugePages, _, _ = strings.Cut(rest, "]")
	}
	h.Groups = readGroups(proc, filepath.Join(sys, "fs/cgroup"))
	return h
}

func readKeys(path string) map[string]int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	keys := map[string]int64{}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) >= 2 {
			if v, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				keys[f[0]] = v
			}
		}
	}
	return keys
}

// readGroups walks from our own groups to the roots, of version 2 and of version 1's memory controller.
func readGroups(proc, root string) Groups {
	g := Groups{Limit: -1, Used: -1}
	b, err := os.ReadFile(filepath.Join(proc, "self/cgroup"))
	if err != nil {
		return g
	}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		part := strings.SplitN(line, ":", 3)
		if len(part) != 3 {
			continue
		}
		base, limitFile, useFile, version := root, "memory.max", "memory.current", 2
		switch {
		case part[0] == "0" && part[1] == "":
			if _, err := os.Stat(filepath.Join(root, "unified")); err == nil {
				base = filepath.Join(root, "unified")
			}
		case strings.Contains(","+part[1]+",", ",memory,"):
			base, limitFile, useFile, version = filepath.Join(root, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", 1
		default:
			continue
		}
		for dir := filepath.Clean("/" + part[2]); ; dir = filepath.Dir(dir) {
			at := filepath.Join(base, dir)
			used, ok := readNumber(filepath.Join(at, useFile))
			if ok {
				if g.Version == 0 || g.Version == 1 && version == 2 && g.Limit < 0 {
					g.Version, g.Used, g.Path = version, used, at
				}
				if limit, ok := readNumber(filepath.Join(at, limitFile)); ok && limit < 1<<60 && (g.Limit < 0 || limit < g.Limit) {
					g = Groups{Version: version, Limit: limit, Used: used, Path: at}
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return g
}

// readNumber reads a file of one number; false for "max" and for no file.
func readNumber(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil
}
