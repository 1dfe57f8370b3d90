package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Faults injected by strace into a child: the test binary as a reading program. strace needs ptrace; where that cannot be had
// the tests fail, unless NP_NO_STRACE=1 says that nothing of the kind is expected here.

func needStrace(t *testing.T) {
	t.Helper()
	out, err := exec.Command("strace", "-qq", "-o", os.DevNull, "true").CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("NP_NO_STRACE") == "1" {
		t.Skipf("NP_NO_STRACE=1: FAULT INJECTION IS NOT TESTED HERE (strace: %v)", err)
	}
	t.Fatalf("fault injection needs strace and ptrace: %v %s; install strace, or set NP_NO_STRACE=1 to go without these tests", err, out)
}

// runHelper runs the job in a child, under the command if one is given.
func runHelper(t *testing.T, job helperJob, attr *syscall.SysProcAttr, under ...string) helperReport {
	t.Helper()
	args, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	line := append(under, self)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), helperEnv+"="+string(args))
	cmd.SysProcAttr = attr
	cmd.Dir = "/"
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v %s", line, err, stderr.String())
	}
	var rep helperReport
	if err := json.Unmarshal(out, &rep); err != nil {
		t.Fatalf("%v: %v in %q %s", line, err, out, stderr.String())
	}
	return rep
}

func TestInjectedFaults(t *testing.T) {
	needStrace(t)
	dir := t.TempDir()
	path := makeFile(t, dir, 2<<20+300)
	job := helperJob{Path: path, Seed: 11, Memlock: -1, Options: Options{QueueDepth: 16, Gap: 4096}}
	plain := runHelper(t, job, nil)
	if plain.Error != "" || plain.Info.Backend != "uring" || !plain.Info.Direct || len(plain.Info.Notes) != 0 {
		t.Fatalf("without faults: %+v", plain)
	}
	onFile := func(inject ...string) []string {
		line := []string{"-P", path}
		for _, i := range inject {
			name, _, _ := strings.Cut(i, ":")
			line = append(line, "-e", "trace="+name, "-e", "inject="+i)
		}
		return line
	}
	call := func(i string) []string {
		name, _, _ := strings.Cut(i, ":")
		return []string{"-e", "trace=" + name, "-e", "inject=" + i}
	}
	for _, c := range []struct {
		name    string
		strace  []string
		backend string
		direct  bool
		note    string // part of the one note; "" for none
		notes   int
	}{
		{"open EINVAL", onFile("openat:error=EINVAL:when=1"), "uring", false, "O_DIRECT refused (invalid argument)", 1},
		{"open EOPNOTSUPP", onFile("openat:error=EOPNOTSUPP:when=1"), "uring", false, "O_DIRECT refused (operation not supported)", 1},
		{"probe EINVAL", onFile("pread64:error=EINVAL:when=1..3"), "uring", false, "O_DIRECT refused (invalid argument)", 1},
		{"probe EOPNOTSUPP", onFile("pread64:error=EOPNOTSUPP:when=1"), "uring", false, "O_DIRECT refused (operation not supported)", 1},
		{"probe EINTR", onFile("pread64:error=EINTR:when=1"), "uring", true, "", 0},
		{"no statx", onFile("statx:error=ENOSYS"), "uring", true, "", 0},
		{"setup EPERM", call("io_uring_setup:error=EPERM"), "pread", true, "io_uring_setup: operation not permitted; reading with worker threads; allow io_uring", 1},
		{"setup ENOSYS", call("io_uring_setup:error=ENOSYS"), "pread", true, "use a kernel of 5.6", 1},
		{"setup ENOMEM", call("io_uring_setup:error=ENOMEM"), "pread", true, "raise the locked-memory limit", 1},
		{"setup ENOMEM once", call("io_uring_setup:error=ENOMEM:when=1"), "uring", true, "queue depth is 15", 1},
		{"setup EINVAL thrice", call("io_uring_setup:error=EINVAL:when=1..3"), "uring", true, "", 0},
		{"register ENOMEM", call("io_uring_register:error=ENOMEM"), "uring", true, "unregistered", 2},
		{"enter EPERM", call("io_uring_enter:error=EPERM"), "pread", true, "io_uring_enter: operation not permitted", 1},
		{"enter EBUSY", call("io_uring_enter:error=EBUSY:when=3+5"), "uring", true, "", 0},
		{"enter EAGAIN", call("io_uring_enter:error=EAGAIN:when=2+3"), "uring", true, "", 0},
		{"enter EINTR", call("io_uring_enter:error=EINTR:when=2+2"), "uring", true, "", 0},
		{"enter takes nothing", call("io_uring_enter:retval=0:when=2+4"), "uring", true, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			under := append([]string{"strace", "-f", "-qq", "-o", filepath.Join(dir, "trace")}, c.strace...)
			rep := runHelper(t, job, nil, under...)
			if rep.Error != "" || rep.Sum != plain.Sum {
				t.Fatalf("sum %x, want %x: %+v", rep.Sum, plain.Sum, rep)
			}
			if rep.Info.Backend != c.backend || rep.Info.Direct != c.direct {
				t.Errorf("%+v", rep.Info)
			}
			if len(rep.Info.Notes) != c.notes || c.notes > 0 && !strings.Contains(rep.Info.Notes[0], c.note) {
				t.Errorf("notes %q, want %d with %q", rep.Info.Notes, c.notes, c.note)
			}
		})
	}
	for _, c := range []struct {
		name   string
		strace []string
		direct string
		want   string
	}{
		{"required, open", onFile("openat:error=EINVAL:when=1"), "require", "O_DIRECT refused"},
		{"required, probe", onFile("pread64:error=EINVAL"), "require", "O_DIRECT refused"},
		{"open EIO", onFile("openat:error=EIO"), "auto", "input/output error"},
		{"probe EIO", onFile("pread64:error=EIO"), "auto", "input/output error"},
		{"buffered probe EIO", onFile("pread64:error=EIO"), "off", "input/output error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			job := job
			job.Options.Direct = c.direct
			under := append([]string{"strace", "-f", "-qq", "-o", filepath.Join(dir, "trace")}, c.strace...)
			if rep := runHelper(t, job, nil, under...); !strings.Contains(rep.Error, c.want) || !strings.Contains(rep.Error, path) {
				t.Errorf("error %q, want %q", rep.Error, c.want)
			}
		})
	}
}

// TestLockedMemory runs the reader as an ordinary user with little or no locked memory: staging cannot be registered, the ring
// and the bytes stay. Several at once, since older kernels count per user.
func TestLockedMemory(t *testing.T) {
	path := makeFile(t, t.TempDir(), 2<<20+300)
	job := helperJob{Path: path, Seed: 11, Memlock: -1}
	plain := runHelper(t, job, nil)
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 { // root may lock what it likes: become nobody
		openUp(t, path)
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	for _, lock := range []int{0, 65536} {
		t.Run(fmt.Sprint(lock), func(t *testing.T) {
			t.Parallel()
			job := job
			job.Memlock = lock
			for range 3 {
				rep := runHelper(t, job, attr)
				if rep.Error != "" || rep.Sum != plain.Sum {
					t.Fatalf("%+v, want sum %x", rep, plain.Sum)
				}
				if rep.Info.Registered || len(rep.Info.Notes) == 0 {
					t.Errorf("%+v: registered, or nothing said", rep.Info)
				}
			}
		})
	}
}

// openUp lets other users reach path and the test binary.
func openUp(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, self} {
		for dir := filepath.Dir(p); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}
