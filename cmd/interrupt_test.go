package cmd_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// background starts a tool and kills it at the end of the test.
func background(t *testing.T, name string, args ...string) (cmd *exec.Cmd, in io.WriteCloser, out *bufio.Reader, errs *bytes.Buffer) {
	t.Helper()
	cmd, errs = exec.Command(filepath.Join(bins.dir, name), args...), new(bytes.Buffer)
	cmd.Stderr = errs
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, in, bufio.NewReader(pipe), errs
}

// TestInterruptedGeneration holds exit 130 and one line after Ctrl-C in the middle of a text.
func TestInterruptedGeneration(t *testing.T) {
	b := prepared(t)
	for _, mode := range []string{"resident", "stream", "sparse"} {
		cmd, _, out, errs := background(t, "nprun", "generate", "-b", b, "--quiet", "--mode", mode, "--prompt", "The", "--ignore-eos", "--max-tokens", "0")
		if _, err := out.ReadByte(); err != nil {
			t.Fatal(err)
		}
		cmd.Process.Signal(syscall.SIGINT)
		io.Copy(io.Discard, out)
		cmd.Wait()
		// A machine that stalls this test may let the text end first.
		if code := cmd.ProcessState.ExitCode(); code != 130 && code != 0 || code == 130 && errs.String() != "nprun: interrupted\n" {
			t.Errorf("%s: exit %d, stderr %q", mode, code, errs)
		}
	}
}

// TestChatOutlivesCtrlC holds that Ctrl-C ends an answer and not the talk, and SIGTERM the talk. An answer may end before
// the signal comes, which then rightly ends the talk: one try of ten must meet an answer.
func TestChatOutlivesCtrlC(t *testing.T) {
	b := prepared(t)
	for try := range 10 {
		cmd, in, out, errs := background(t, "nprun", "chat", "-b", b, "--quiet", "--max-tokens", "0")
		io.WriteString(in, "tell me of the fog\n")
		if _, err := out.ReadByte(); err != nil {
			t.Fatalf("no answer: %v, %s", err, errs)
		}
		cmd.Process.Signal(syscall.SIGINT)
		if _, err := out.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, "again\n")
		if _, err := out.ReadString('\n'); err != nil {
			cmd.Wait()
			if try == 9 {
				t.Fatalf("no second answer: %v, %s", err, errs)
			}
			continue
		}
		cmd.Process.Signal(syscall.SIGTERM)
		io.Copy(io.Discard, out)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.HasSuffix(errs.String(), "nprun: interrupted\n") {
			t.Errorf("exit %d after SIGTERM, stderr %q", code, errs)
		}
		return
	}
}

// TestLostOutput holds that a result that could not be written is a failure of the drive and not a success.
func TestLostOutput(t *testing.T) {
	b := prepared(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{
		{"generate", "-b", b, "--prompt", "The fog", "--max-tokens", "4"},
		{"generate", "-b", b, "--prompt", "The fog", "--max-tokens", "4", "--json"},
		{"tokenize", "-b", b, "--ids", "5,6"},
		{"eval", "-b", b, "--ids", "5,6"},
		{"bench", "-b", b, "--prompt", "The", "--max-tokens", "2"},
		{"plan", "-b", b},
		{"inspect", "-b", b},
		{"verify", "-b", b},
		{"version"},
	} {
		var errs bytes.Buffer
		cmd := exec.Command(filepath.Join(bins.dir, "nprun"), args...)
		cmd.Stdout, cmd.Stderr = full, &errs
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(errs.String(), "error: ") || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("%v: exit %d, stderr %q", args, code, errs.String())
		}
	}
}
