package engine

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAvailableMemory holds the budget of made-up machines: control groups of both versions, limits in a parent group,
// reclaimable page cache, and no limit at all.
func TestAvailableMemory(t *testing.T) {
	const meminfo = "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups":       {map[string]string{"proc/meminfo": meminfo}, 1000 << 10},
		"v2, no limit":    {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "cg/a/b/memory.max": "max\n"}, 1000 << 10},
		"v2, own limit":   {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "cg/a/b/memory.max": "500000\n", "cg/a/b/memory.current": "100000\n"}, 400000},
		"v2, in a parent": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "cg/a/b/memory.max": "max\n", "cg/a/memory.max": "300000\n", "cg/a/memory.current": "0\n"}, 300000},
		"v2, page cache is given back": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "cg/a/memory.max": "500000\n", "cg/a/memory.current": "450000\n",
			"cg/a/memory.stat": "anon 50000\ninactive_file 300000\nactive_file 100000\n"}, 450000},
		"v1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n", "cg/memory/x/memory.limit_in_bytes": "200000\n",
			"cg/memory/x/memory.usage_in_bytes": "50000\n"}, 150000},
		"v1, no limit": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/x\n", "cg/memory/x/memory.limit_in_bytes": "9223372036854771712\n"}, 1000 << 10},
		"full":         {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "cg/a/memory.max": "5000\n", "cg/a/memory.current": "9000\n"}, 0},
	} {
		dir := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(dir, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		got, source := availableMemory(filepath.Join(dir, "proc"), filepath.Join(dir, "cg"))
		if got != c.want {
			t.Errorf("%s: %d from %s, want %d", name, got, source, c.want)
		}
	}
}
