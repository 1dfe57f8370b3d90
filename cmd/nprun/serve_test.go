package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"neuroprefetcher/runtime/engine/enginetest"
)

// server starts nprun serve and waits until it says where it is.
func server(t *testing.T, args ...string) (url string, cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	cmd, stderr = exec.Command(os.Args[0], append([]string{"serve", "--json", "--memory", "1GiB"}, args...)...), new(bytes.Buffer)
	cmd.Env = append(os.Environ(), "NPRUN_TEST_MAIN=1")
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	var ready struct{ URL, Model, Mode string }
	if err := json.NewDecoder(bufio.NewReader(out)).Decode(&ready); err != nil || ready.URL == "" || ready.Model == "" || ready.Mode == "" {
		cmd.Wait()
		t.Fatalf("%+v, %v: %s", ready, err, stderr)
	}
	return ready.URL, cmd, stderr
}

// TestServe answers over the network, tells nothing of prompts on stderr, and stops cleanly on SIGINT and SIGTERM with
// a request in progress.
func TestServe(t *testing.T) {
	rig := &enginetest.Rig{}
	rig.Chain(enginetest.Byte('?'), enginetest.Byte('o'), enginetest.Byte('k'), enginetest.EOS)
	rig.Chain(enginetest.Byte('!'), enginetest.Byte('x'), enginetest.Byte('x'))
	dir := rig.Bundle(t)
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# ours\n\nsecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		url, cmd, stderr := server(t, "-b", dir, "--listen", "0.0.0.0:0", "--api-key-file", keys)
		url = strings.Replace(url, "0.0.0.0", "127.0.0.1", 1)
		url = strings.Replace(url, "[::]", "127.0.0.1", 1)
		post := func(body, key string) (int, string) {
			req, _ := http.NewRequest("POST", url+"/v1/completions", strings.NewReader(body))
			req.Header.Set("Authorization", "Bearer "+key)
			r, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			return r.StatusCode, string(b)
		}
		if status, b := post(`{"prompt":"confidential?","temperature":0}`, "secret"); status != 200 || !strings.Contains(b, `"text":"ok"`) {
			t.Errorf("%d %s", status, b)
		}
		if status, _ := post(`{"prompt":"?"}`, "wrong"); status != 401 {
			t.Errorf("wrong key: %d", status)
		}
		got := make(chan string, 1)
		go func() {
			_, b := post(`{"prompt":"!","temperature":0,"max_tokens":200,"n":20}`, "secret")
			got <- b
		}()
		time.Sleep(20 * time.Millisecond) // either way the answer must be whole
		cmd.Process.Signal(sig)
		if b := <-got; strings.Count(b, strings.Repeat("x", 200)) != 20 {
			t.Errorf("%v: the answer in progress is %.300s", sig, b)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, %s", sig, err, stderr)
		}
		if s := stderr.String(); strings.Contains(s, "confidential") || strings.Contains(s, "secret") || !strings.Contains(s, "stopped") {
			t.Errorf("stderr: %s", s)
		}
	}
}

func TestServeRefusals(t *testing.T) {
	dir := (&enginetest.Rig{}).Bundle(t)
	empty := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(empty, []byte("# none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	bad := (&enginetest.Rig{Template: "{% for %}"}).Bundle(t)
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{nil, 2, "no bundle"}, {[]string{"-b", dir, "extra"}, 2, "extra"},
		{[]string{"-b", dir, "--listen", "0.0.0.0:0"}, 2, "api-key-file"}, {[]string{"-b", dir, "--listen", ":0"}, 2, "api-key-file"}, {[]string{"-b", dir, "--listen", "8080"}, 2, "HOST:PORT"},
		{[]string{"-b", dir, "--listen", "192.0.2.1:0"}, 2, "api-key-file"}, {[]string{"-b", dir, "--listen", "0.0.0.0:0", "--api-key-file", empty}, 3, "no key"},
		{[]string{"-b", dir, "--listen", "0.0.0.0:0", "--api-key-file", empty + "x"}, 3, "api-key-file"},
		{[]string{"-b", dir, "--listen", l.Addr().String()}, 5, "in use"}, {[]string{"-b", dir, "--queue", "0"}, 2, "queue"}, {[]string{"-b", dir, "--max-body", "x"}, 2, "max-body"},
		{[]string{"-b", dir + "x", "--listen", "127.0.0.1:0"}, 3, dir + "x"}, {[]string{"-b", bad, "--listen", "127.0.0.1:0"}, 3, "chat template"},
	} {
		cmd := exec.Command(os.Args[0], append([]string{"serve", "--memory", "1GiB"}, c.args...)...)
		cmd.Env = append(os.Environ(), "NPRUN_TEST_MAIN=1")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		timer := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
		cmd.Run()
		timer.Stop()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(stderr.String(), c.text) || stdout.Len() != 0 {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", c.args, code, &stdout, &stderr)
		}
	}
}
