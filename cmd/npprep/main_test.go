package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	ct "neuroprefetcher/format/checkpoint/checkpointtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"npprep": main, "onmount": onMount})
}

// TestScripts runs the command as a user would.
func TestScripts(t *testing.T) {
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("TINY", filepath.Join(repo, "pipelines", "tiny"))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			// checkpoint DIR [key=value ...] writes a small checkpoint
			"checkpoint": func(ts *testscript.TestScript, _ bool, args []string) {
				m := ct.Tiny()
				for _, a := range args[1:] {
					k, v, _ := strings.Cut(a, "=")
					n, err := strconv.Atoi(v)
					ts.Check(err)
					switch k {
					case "layers":
						m.Layers = n
					case "nan":
						m.Edit = func(tens []ct.Tensor) []ct.Tensor {
							ct.Find(tens, "model.layers.1.mlp.up_proj.weight").SetBits(n, 0x7fc0)
							return tens
						}
					}
				}
				ts.Check(m.Write(ts.MkAbs(args[0])))
			},
			// code N COMMAND ARGS... runs a command that must exit with N
			"code": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				got := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					got = exit.ExitCode()
				} else {
					ts.Check(err)
				}
				if strconv.Itoa(got) != args[0] {
					ts.Fatalf("%v: exit %d, want %s", args[1:], got, args[0])
				}
			},
			// damage FILE OFFSET flips a byte
			"damage": func(ts *testscript.TestScript, _ bool, args []string) {
				path := ts.MkAbs(args[0])
				b, err := os.ReadFile(path)
				ts.Check(err)
				off, err := strconv.Atoi(args[1])
				ts.Check(err)
				b[off] ^= 0x20
				ts.Check(os.WriteFile(path, b, 0o666))
			},
		},
	})
}

// mountNS starts a command in a mount namespace of its own.
func mountNS(args ...string) *exec.Cmd {
	cmd := &exec.Cmd{Path: os.Args[0], Args: args, SysProcAttr: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// onMount is a command of the tests: onmount DIR SIZE ro|rw npprep-arguments... It mounts a small file system on
// DIR, runs npprep, and prints its exit code and what it left in DIR.
func onMount() {
	dir, size, mode, args := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	err := unix.Mount("none", dir, "tmpfs", 0, "size="+size)
	if err == nil && mode == "ro" {
		err = unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size="+size)
	}
	if err != nil {
		fmt.Println("no mount:", err)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := &exec.Cmd{Path: exe, Args: append([]string{"npprep"}, args...)}
	out, _ := cmd.CombinedOutput()
	fmt.Printf("%sexit %d\n", out, cmd.ProcessState.ExitCode())
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		if !d.IsDir() {
			st, _ := d.Info()
			fmt.Println("left", path, st.Size())
		}
		return nil
	})
}

// runOnMount runs npprep with a small file system mounted on dir. Where nothing may be mounted, it says so and
// gives false; the tests then go other ways.
func runOnMount(t *testing.T, dir, size, mode string, args ...string) (string, bool) {
	t.Helper()
	out, err := mountNS(append([]string{"onmount", dir, size, mode}, args...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "no mount:") {
		t.Logf("file systems cannot be mounted here (%v %s)", err, out)
		return "", false
	}
	return string(out), true
}
