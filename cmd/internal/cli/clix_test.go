package clix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"neuroprefetcher/format"
)

func TestParseSize(t *testing.T) {
	good := map[string]int64{
		"8GiB": 8 << 30, "8 GiB": 8 << 30, "8gib": 8 << 30, "8G": 8 << 30, "8GB": 8e9, "1.5GiB": 3 << 29, "512MiB": 512 << 20, "64KiB": 64 << 10,
		"4096": 4096, "4096B": 4096, " 1 MiB ": 1 << 20, "2TiB": 2 << 40, "0": 0, "10kB": 10000,
	}
	for s, want := range good {
		if got, err := ParseSize(s); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "GiB", "-1", "-1GiB", "1e3", "0x10", "Inf", "NaN", "8GiBB", "8 8", "1_000", "99999999TiB", "lots", "1,5GiB", "."} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q was taken as %d", s, got)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 25088: "24.5 KiB", 1 << 20: "1.00 MiB", 100 << 20: "100 MiB", 14<<30 + 1<<29: "14.5 GiB", 1<<40 - 1: "1.00 TiB", -2048: "-2.00 KiB", 1<<63 - 1: "8.00 EiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// What FormatSize writes, ParseSize reads, to the digits shown.
func TestSizesRoundTrip(t *testing.T) {
	for n := int64(1); n < 1<<50; n = n*5/3 + 1 {
		got, err := ParseSize(FormatSize(n))
		if err != nil || got < n-n/100-1 || got > n+n/100+1 {
			t.Errorf("%d → %q → %d, %v", n, FormatSize(n), got, err)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", 812 * time.Microsecond: "812 µs", 1250 * time.Millisecond: "1.25 s", 200 * time.Second: "3m20s", 90 * time.Millisecond: "90 ms", 42 * time.Nanosecond: "42ns"} {
		if got := Duration(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {Usagef("x"), 2}, {format.Inputf("x"), 3}, {format.Corruptf("x"), 3}, {format.Fitf("x"), 4}, {format.IOf("x"), 5}, {errors.New("x"), 5},
		{context.Canceled, 130}, {fmt.Errorf("stage: %w", context.Canceled), 130},
		{fmt.Errorf("stage: %w", format.Hint(format.Fitf("x"), "h")), 4},
	} {
		if got := Code(c.err); got != c.want {
			t.Errorf("%v: exit %d, want %d", c.err, got, c.want)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	var b bytes.Buffer
	PrintError(&b, "npprep", format.Hint(format.Inputf("tensor \"a\nb\x1b[31m\" is bad"), "do\nthis"))
	if got, want := b.String(), "npprep: error: tensor \"a b [31m\" is bad\nnpprep: hint: do this\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	b.Reset()
	PrintError(&b, "nprun", context.Canceled)
	if b.String() != "nprun: interrupted\n" {
		t.Errorf("%q", b.String())
	}
	for code, want := range map[error]string{syscall.ENOSPC: format.MakeSpace, syscall.EACCES: "who may", syscall.EROFS: "another place", syscall.ENOTDIR: "a folder is wanted"} {
		b.Reset()
		PrintError(&b, "nprun", format.IOf("%w", &os.PathError{Op: "mkdir", Path: "x", Err: code})) // whoever forgot to say what to do
		if !strings.HasPrefix(b.String(), "nprun: error: mkdir x: "+code.Error()+"\nnprun: hint: ") || !strings.Contains(b.String(), want) {
			t.Errorf("%q", b.String())
		}
	}
}

// A wrong flag of a command prints no help on stdout, says where help is, that of the command if there is one, and exits
// with 2.
func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{{"p", "c", "--nope"}, {"p", "--nope"}, {"p", "x"}, {"p"}, {"p", "c", "--n", "five"}} {
		var out, errs bytes.Buffer
		app := &cli.App{Name: "p", Writer: &out, ErrWriter: io.Discard, Commands: []*cli.Command{{
			Name: "c", Flags: []cli.Flag{&cli.IntFlag{Name: "n"}}, Action: func(*cli.Context) error { return nil }}}}
		help := "p: hint: see p --help"
		if len(args) > 2 {
			help = "p: hint: see p c --help"
		}
		if code := Run(app, args, &errs); code != ExitUsage || out.Len() > 0 || !strings.HasPrefix(errs.String(), "p: error: ") || !strings.Contains(errs.String(), help) {
			t.Errorf("%v: exit %d, stdout %q, stderr %q", args, code, out.String(), errs.String())
		}
	}
}

// TestSuggestions holds that a slip gets the name that was meant, and something else none.
func TestSuggestions(t *testing.T) {
	names := []string{"memory", "mode", "max-tokens", "n", "io", "k-max"}
	for typed, want := range map[string]string{"memroy": "memory", "mod": "mode", "maxtokens": "max-tokens", "k-mx": "k-max", "nope": "", "x": "", "colour": "", "memorandum": ""} {
		if got := nearest(typed, names); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
	var errs bytes.Buffer
	app := &cli.App{Name: "p", Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{{
		Name: "generate", Flags: []cli.Flag{&cli.IntFlag{Name: "memory"}}, Action: func(*cli.Context) error { return nil }}}}
	if Run(app, []string{"p", "generate", "--memroy", "5"}, &errs); !strings.Contains(errs.String(), "did you mean --memory? see p generate --help") {
		t.Errorf("%s", errs.String())
	}
	errs.Reset()
	if Run(app, []string{"p", "genrate"}, &errs); !strings.Contains(errs.String(), "did you mean p generate?") {
		t.Errorf("%s", errs.String())
	}
}

// TestVersionAndCompletion holds what is for scripts: the version, and what the shells read.
func TestVersionAndCompletion(t *testing.T) {
	run := func(args ...string) string {
		var out bytes.Buffer
		app := &cli.App{Name: "p", Writer: &out, ErrWriter: io.Discard, Commands: []*cli.Command{CompletionCommand("p"), {
			Name: "generate", Flags: []cli.Flag{&cli.IntFlag{Name: "memory"}}, Action: func(*cli.Context) error { return nil }}}}
		var errs bytes.Buffer
		if code := Run(app, append([]string{"p"}, args...), &errs); code != 0 {
			t.Errorf("%v: exit %d, %s", args, code, errs.String())
		}
		return out.String()
	}
	if got := run("--version"); !strings.HasPrefix(got, "p "+Version) {
		t.Errorf("version %q", got)
	}
	for shell, want := range map[string]string{"bash": "complete -o", "zsh": "compdef _p p", "fish": "complete -c p"} {
		if got := run("completion", shell); !strings.Contains(got, want) {
			t.Errorf("%s: %q", shell, got)
		}
	}
}

// TestEmptyValues holds that a flag without a value is not taken for no flag, but where nothing is a text.
func TestEmptyValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--out", ""}, ExitUsage}, {[]string{"--out="}, ExitUsage}, {[]string{"--name", "a,"}, ExitUsage}, {[]string{"-o", ""}, ExitUsage},
		{[]string{"--prompt", ""}, ExitOK}, {nil, ExitOK}, {[]string{"--name", "a,b", "--out", "x"}, ExitOK},
	} {
		var errs bytes.Buffer
		app := &cli.App{Name: "p", Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{{
			Name: "c", Flags: []cli.Flag{&cli.StringFlag{Name: "out", Aliases: []string{"o"}}, &cli.StringSliceFlag{Name: "name"}, &cli.StringFlag{Name: "prompt"}},
			Action: func(*cli.Context) error { return nil }}}}
		if code := Run(app, append([]string{"p", "c"}, c.args...), &errs); code != c.code || (code == ExitUsage) != strings.Contains(errs.String(), ": the value is empty") {
			t.Errorf("%q: exit %d, %s", c.args, code, errs.String())
		}
	}
}

// full is a drive without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

// TestLostOutput holds that a run whose output got lost has failed, help and version included.
func TestLostOutput(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"--version"}, {"c", "--help"}, {"c"}, {"completion", "bash"}, {"completion", "fish"}} {
		var errs bytes.Buffer
		app := &cli.App{Name: "p", Writer: full{}, ErrWriter: io.Discard, Commands: []*cli.Command{CompletionCommand("p"), {
			Name: "c", Action: func(c *cli.Context) error {
				fmt.Fprintln(c.App.Writer, "the result")
				return nil
			}}}}
		if code := Run(app, append([]string{"p"}, args...), &errs); code != ExitIO || errs.String() != "p: error: writing the result: no space\n" {
			t.Errorf("%v: exit %d, %q", args, code, errs.String())
		}
	}
}
