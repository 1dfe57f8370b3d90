package measure

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHost holds what is read of made-up machines with control groups of version 2, version 1 and none.
func TestHost(t *testing.T) {
	tree := func(files map[string]string) Host {
		dir := t.TempDir()
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		return readHost(filepath.Join(dir, "proc"), filepath.Join(dir, "sys"))
	}
	if h := tree(nil); h.MemTotal != -1 || h.Groups.Version != 0 || h.Groups.Limit != -1 || h.HugePages != "" {
		t.Errorf("nothing: %+v", h)
	}
	mem := "MemTotal:       1000 kB\nMemAvailable:    600 kB\nSwapTotal:         0 kB\nSwapFree:          0 kB\n"
	h := tree(map[string]string{"proc/meminfo": mem, "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
		"proc/self/cgroup":                     "0::/a/b\n",
		"sys/fs/cgroup/a/b/memory.max":         "max\n",
		"sys/fs/cgroup/a/b/memory.current":     "10\n",
		"sys/fs/cgroup/a/memory.max":           "5000\n",
		"sys/fs/cgroup/a/memory.current":       "30\n",
		"sys/fs/cgroup/a/b/memory.swap.max":    "0\n",
		"sys/fs/cgroup/memory.max":             "9000\n",
		"sys/fs/cgroup/memory.current":         "40\n",
		"sys/fs/cgroup/other/memory.max":       "1\n",
		"sys/fs/cgroup/other/memory.current":   "1\n",
		"sys/fs/cgroup/a/b/c/memory.max":       "2\n",
		"sys/fs/cgroup/a/b/c/memory.current":   "2\n",
		"sys/fs/cgroup/a/b/memory.stat":        "x 1\n",
		"sys/fs/cgroup/a/b/memory.swap.events": "x 1\n"})
	if h.MemTotal != 1000<<10 || h.MemAvailable != 600<<10 || h.SwapTotal != 0 || h.HugePages != "madvise" {
		t.Errorf("%+v", h)
	}
	if g := h.Groups; g.Version != 2 || g.Limit != 5000 || g.Used != 30 || filepath.Base(g.Path) != "a" {
		t.Errorf("version 2: %+v", g)
	}
	h = tree(map[string]string{"proc/self/cgroup": "12:cpu,memory:/x\n0::/\n",
		"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "77\n"})
	if g := h.Groups; g.Version != 1 || g.Limit != -1 || g.Used != 77 {
		t.Errorf("version 1: %+v", g)
	}
}
