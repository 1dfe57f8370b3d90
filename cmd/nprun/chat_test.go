package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
)

// TestMain lets the test's own program be nprun, for tests that need it in a terminal.
func TestMain(m *testing.M) {
	if os.Getenv("NPRUN_TEST_MAIN") == "1" {
		main()
	}
	os.Exit(m.Run())
}

// script is a person whose lines are known.
type script struct {
	lines   []any // string or error
	prompts []string
}

func (s *script) line(prompt string) (string, error) {
	s.prompts = append(s.prompts, prompt)
	if len(s.lines) == 0 {
		return "", io.EOF
	}
	x := s.lines[0]
	s.lines = s.lines[1:]
	if err, ok := x.(error); ok {
		return "", err
	}
	return x.(string), nil
}

func TestReadMessage(t *testing.T) {
	for _, c := range []struct {
		lines []any
		want  string
		err   error
	}{
		{[]any{"hello"}, "hello", nil}, {[]any{""}, "", nil},
		{[]any{`one\`, `two\`, "three"}, "one\ntwo\nthree", nil}, {[]any{`one\`, ""}, "one\n", nil},
		{[]any{`"""`, "a", "", "  b", `"""`}, "a\n\n  b", nil}, {[]any{`"""a`, `b"""`}, "a\nb", nil}, {[]any{`"""a"""`}, "a", nil}, {[]any{`""""""`}, "", nil},
		{[]any{`"""`, `x\`, `"""`}, `x\`, nil},
		{[]any{`one\`, errInterrupted, "two"}, "", errInterrupted}, {[]any{`"""`, "a", errInterrupted}, "", errInterrupted}, {[]any{`"""`, "a"}, "", io.EOF}, {nil, "", io.EOF},
	} {
		got, err := readMessage(&script{lines: c.lines})
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %v; want %q, %v", c.lines, got, err, c.want, c.err)
		}
	}
}

const rolesTemplate = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"

// parrot says x forty times and a bracket, whatever it is asked.
func parrot(t *testing.T) (*conversation, *bytes.Buffer, *bytes.Buffer, chan os.Signal) {
	rig := &enginetest.Rig{Template: rolesTemplate}
	rig.Chain(enginetest.Byte('?'), enginetest.Byte('o'), enginetest.Byte('k'), enginetest.EOS)
	rig.Chain(enginetest.Byte('!'), enginetest.Byte('x'), enginetest.Byte('x'))
	dir := rig.Bundle(t)
	tmpl, err := chat.New(rolesTemplate, "<s>", "</s>")
	if err != nil {
		t.Fatal(err)
	}
	var out, say bytes.Buffer
	signals := make(chan os.Signal, 1)
	return &conversation{e: enginetest.Open(t, dir, engine.Options{}), t: tmpl, bundle: dir, out: &clix.Output{W: &out}, say: &say, signals: signals}, &out, &say, signals
}

func said(v *conversation) string {
	var s strings.Builder
	for _, m := range v.all() {
		fmt.Fprintf(&s, "%s:%s|", m.Role, m.Content)
	}
	return s.String()
}

func TestTalk(t *testing.T) {
	v, out, say, _ := parrot(t)
	dir := t.TempDir()
	text, js := filepath.Join(dir, "talk.txt"), filepath.Join(dir, "talk.json")
	if err := v.talk(&script{lines: []any{"/system", "/system be kind", "/system", "how?", errInterrupted, "", `a\`, "b?", "//help?", "/nonsense", "/stats", "/save", "/save " + text, "/save " + text, "/save! " + text, "/save " + js, "/help", "/exit", "never?"}}); err != nil {
		t.Fatal(err)
	}
	if want := "system:be kind|user:how?|assistant:ok|user:a\nb?|assistant:ok|user:/help?|assistant:ok|"; said(v) != want {
		t.Errorf("said %q, want %q", said(v), want)
	}
	if out.String() != "ok\nok\nok\n" {
		t.Errorf("stdout %q", out)
	}
	for _, want := range []string{"no system message\n", "be kind\n", "Ctrl-D", "no command /nonsense", "tok/s", "6 messages", "no file named", "there already", "hint: /save! ", "7 messages written"} {
		if !strings.Contains(say.String(), want) {
			t.Errorf("stderr lacks %q: %s", want, say)
		}
	}
	b, err := os.ReadFile(text)
	if want := "system:\nbe kind\n\nuser:\nhow?\n\nassistant:\nok\n\nuser:\na\nb?\n\n"; err != nil || !strings.HasPrefix(string(b), want) {
		t.Errorf("%q, %v", b, err)
	}
	var saved struct{ Messages []chat.Message }
	if b, err = os.ReadFile(js); err != nil || json.Unmarshal(b, &saved) != nil || len(saved.Messages) != 7 || saved.Messages[0] != v.all()[0] {
		t.Errorf("%s, %v", b, err)
	}
	if err := v.talk(&script{lines: []any{"/reset", `/system ""`, "new?"}}); err != nil {
		t.Fatal(err)
	}
	if want := "user:new?|assistant:ok|"; said(v) != want || v.e.Len() != len("[user]new?")+2 {
		t.Errorf("after reset: %q, %d tokens", said(v), v.e.Len())
	}
}

// TestTalkGoesOn holds that a message that cannot be answered is told, forgotten, and ends nothing.
func TestTalkGoesOn(t *testing.T) {
	v, out, say, _ := parrot(t)
	if err := v.talk(&script{lines: []any{"a?", "\xff?", strings.Repeat("long ", 80), "b?"}}); err != nil {
		t.Fatal(err)
	}
	if want := "user:a?|assistant:ok|user:b?|assistant:ok|"; said(v) != want || out.String() != "ok\nok\n" {
		t.Errorf("said %q, stdout %q", said(v), out)
	}
	for _, want := range []string{"not UTF-8", "the context holds 256", "hint: /reset"} {
		if !strings.Contains(say.String(), want) {
			t.Errorf("stderr lacks %q: %s", want, say)
		}
	}
	v.out.W = failing{}
	if err := v.talk(&script{lines: []any{"c?"}}); err == nil || !strings.Contains(err.Error(), "writing the result") {
		t.Errorf("a lost answer: %v", err)
	}
}

// TestFullContext holds that a talk goes on when the context is full: the oldest turns are left out, the system message is
// not, it is said once, and what is saved is everything.
func TestFullContext(t *testing.T) {
	v, out, say, _ := parrot(t)
	v.system = "be kind"
	question := strings.Repeat("long ", 12) + "?" // of a context of 256
	for i := range 12 {
		if err := v.answer(question); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		ids, err := v.t.Encode(v.e.Tokenizer, v.sent(v.skip), true)
		if err != nil || len(ids) > v.e.Context() {
			t.Fatalf("message %d: %d tokens sent, %v", i, len(ids), err)
		}
	}
	if out.String() != strings.Repeat("ok\n", 12) {
		t.Errorf("answers %q", out)
	}
	if strings.Count(say.String(), "oldest turns are left out") != 1 {
		t.Errorf("said %q", say)
	}
	if v.skip == 0 || v.skip%2 != 0 || v.sent(v.skip)[0].Role != "system" || v.sent(v.skip)[1].Role != "user" || len(v.all()) != 25 {
		t.Errorf("skipped %d of %d", v.skip, len(v.all()))
	}
	v.command("/reset")
	if v.skip != 0 || v.answer("new?") != nil || len(v.msgs) != 2 {
		t.Errorf("after a reset: %d, %d", v.skip, len(v.msgs))
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no reader") }

// interrupter is an output that sends a signal with the first text and then waits for it to have been seen.
type interrupter struct {
	bytes.Buffer
	signals chan os.Signal
	signal  os.Signal
}

func (w *interrupter) Write(b []byte) (int, error) {
	if w.Len() == 0 {
		w.signals <- w.signal
	}
	for range 100 { // the signal is taken by another goroutine
		if len(w.signals) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(time.Millisecond)
	return w.Buffer.Write(b)
}

// TestCtrlC holds that Ctrl-C ends the answer, keeps what was said, and the talk goes on; SIGTERM ends the talk.
func TestCtrlC(t *testing.T) {
	v, _, _, signals := parrot(t)
	w := &interrupter{signals: signals, signal: os.Interrupt}
	v.out.W = w
	if err := v.talk(&script{lines: []any{"!", "more?"}}); err != nil {
		t.Fatal(err)
	}
	if len(v.msgs) != 4 || len(v.msgs[1].Content) < 1 || len(v.msgs[1].Content) > 200 || strings.Trim(v.msgs[1].Content, "x") != "" || v.msgs[3].Content != "ok" {
		t.Errorf("said %q", said(v))
	}
	v, _, _, signals = parrot(t)
	v.out.W = &interrupter{signals: signals, signal: syscall.SIGTERM}
	if err := v.talk(&script{lines: []any{"!", "more?"}}); !errors.Is(err, context.Canceled) || len(v.msgs) != 0 {
		t.Errorf("SIGTERM: %v, said %q", err, said(v))
	}
	signals <- os.Interrupt // from before the answer
	v.out.W = io.Discard
	if err := v.talk(&script{lines: []any{"more?"}}); err != nil || said(v) != "user:more?|assistant:ok|" {
		t.Errorf("%v, said %q", err, said(v))
	}
}

// pty opens a pseudo-terminal.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: the chat in a terminal is NOT tested: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestTerminal talks in a real terminal: editing, Ctrl-C at the prompt and in an answer, pasted lines, commands, Ctrl-D.
func TestTerminal(t *testing.T) {
	rig := &enginetest.Rig{Template: rolesTemplate}
	rig.Chain(enginetest.Byte('?'), enginetest.Byte('o'), enginetest.Byte('k'), enginetest.EOS)
	rig.Chain(enginetest.Byte('!'), enginetest.Byte('x'), enginetest.Byte('x'))
	saved := filepath.Join(t.TempDir(), "talk.json")
	master, slave := pty(t)
	defer master.Close()
	cmd := exec.Command(os.Args[0], "chat", "-b", rig.Bundle(t), "--memory", "1GiB")
	cmd.Env = append(os.Environ(), "NPRUN_TEST_MAIN=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	slave.Close()
	pieces := make(chan string, 1000)
	go func() {
		defer close(pieces)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			pieces <- string(b[:n])
		}
	}()
	screen := ""
	wait := func(text string) {
		t.Helper()
		for !strings.Contains(screen, text) {
			select {
			case p, ok := <-pieces:
				if !ok {
					t.Fatalf("the program ended; waiting for %q in %q", text, screen)
				}
				screen += p
			case <-time.After(2 * time.Minute):
				t.Fatalf("waited for %q in %q", text, screen)
			}
		}
		screen = screen[strings.Index(screen, text)+len(text):]
	}
	typed := func(s string) { io.WriteString(master, s) }
	wait("/help lists the commands")
	wait("> ")
	typed("hoy\x7fw?\r") // backspace
	wait("ok\r\n")
	wait("> ")
	typed("half a line\x03") // Ctrl-C at the prompt
	wait("Ctrl-D or /exit leaves")
	wait("> ")
	typed("\x1b[A\r") // the line before
	wait("ok\r\n")
	wait("> ")
	typed("a\\\r")
	wait("… ")
	typed("b?\r")
	wait("ok\r\n")
	wait("> ")
	typed("\x1b[200~pasted\rtext?\x1b[201~\r")
	wait("ok\r\n")
	wait("> ")
	typed("/save " + saved + "\r")
	wait("8 messages written")
	wait("> ")
	typed("/stats\r")
	wait("tok/s")
	wait("> ")
	typed("\x04")
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("exit: %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("Ctrl-D does not leave")
	}
	b, err := os.ReadFile(saved)
	var talk struct{ Messages []chat.Message }
	if err != nil || json.Unmarshal(b, &talk) != nil || len(talk.Messages) != 8 {
		t.Fatalf("%s, %v", b, err)
	}
	for i, want := range []string{"how?", "ok", "how?", "ok", "a\nb?", "ok", "pasted\ntext?", "ok"} {
		if talk.Messages[i].Content != want {
			t.Errorf("message %d is %q, want %q", i, talk.Messages[i].Content, want)
		}
	}
}
