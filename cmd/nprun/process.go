package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// processStats are what the kernel counts for the whole process, by whatever way it reads. -1: this kernel does not tell.
type processStats struct {
	ReadBytes   int64 `json:"storage_read_bytes"` // fetched from storage, page faults and read-ahead included
	MajorFaults int64 `json:"major_faults"`       // page faults that waited for storage
}

// countProcess reads the counters, which only grow.
func countProcess() processStats {
	s := processStats{-1, -1}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		s.MajorFaults = int64(u.Majflt)
	}
	f, err := os.Open("/proc/self/io")
	if err != nil {
		return s
	}
	defer f.Close()
	for l := bufio.NewScanner(f); l.Scan(); {
		if v, ok := strings.CutPrefix(l.Text(), "read_bytes: "); ok {
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				s.ReadBytes = n
			}
		}
	}
	return s
}

// since is what was counted after before.
func (s processStats) since(before processStats) processStats {
	sub := func(a, b int64) int64 {
		if a < 0 || b < 0 {
			return -1
		}
		return a - b
	}
	return processStats{sub(s.ReadBytes, before.ReadBytes), sub(s.MajorFaults, before.MajorFaults)}
}
