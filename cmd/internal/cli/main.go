package clix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"neuroprefetcher/format"
)

// The exit codes of every command.
const (
	ExitOK          = 0
	ExitUsage       = 2
	ExitInput       = 3
	ExitFit         = 4
	ExitIO          = 5
	ExitInterrupted = 130
)

// usageError is a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usagef reports a wrong command line: exit 2.
func Usagef(f string, a ...any) error { return usageError{fmt.Errorf(f, a...)} }

// Code maps an error to its exit code. An error of no known kind is a failure of the system: 5.
func Code(err error) int {
	var u usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &u):
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, format.ErrFit):
		return ExitFit
	case errors.Is(err, format.ErrInput):
		return ExitInput
	}
	return ExitIO
}

// PrintError writes err in the commands' voice: one line, then its hint on another.
func PrintError(w io.Writer, prog string, err error) {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintf(w, "%s: interrupted\n", prog)
	} else {
		fmt.Fprintf(w, "%s: error: %s\n", prog, oneLine(err.Error()))
	}
	if h := hint(err); h != "" {
		fmt.Fprintf(w, "%s: hint: %s\n", prog, oneLine(h))
	}
}

// hint is what err itself says is to be done, or what always helps where the system says no.
func hint(err error) string {
	h := format.HintOf(err)
	is := func(codes ...error) bool {
		return slices.ContainsFunc(codes, func(e error) bool { return errors.Is(err, e) })
	}
	switch {
	case h != "":
		return h
	case is(syscall.ENOSPC, syscall.EDQUOT):
		return format.MakeSpace
	case is(fs.ErrPermission, syscall.EROFS):
		return "see who may read and write there, or choose another place"
	case is(syscall.ENOTDIR):
		return "a folder is wanted where a file is: choose another place"
	}
	return ""
}

// oneLine keeps a message on its line whatever a hostile file put into it.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.TrimSpace(s))
}

// Main runs app with the process's arguments, under a context that SIGINT and SIGTERM cancel, and exits. A
// second signal ends the process at once.
func Main(app *cli.App) { os.Exit(Run(app, os.Args, os.Stderr)) }

// Run is Main without the exit.
func Run(app *cli.App, args []string, stderr io.Writer) int {
	ctx, stop := SignalContext(context.Background())
	defer stop()
	Prepare(app)
	out, ok := app.Writer.(*Output)
	if !ok {
		if out = (&Output{W: app.Writer}); out.W == nil {
			out.W = os.Stdout
		}
		app.Writer = out
	}
	err := app.RunContext(ctx, args)
	if err == nil {
		err = out.Err // help and version do not look at what became of them
	}
	if err == nil {
		return ExitOK
	}
	PrintError(stderr, app.Name, err)
	return Code(err)
}

// Prepare makes an app and its commands report wrong command lines as errors of ours instead of printing help
// on stdout, and gives the app --version and completion.
func Prepare(app *cli.App) {
	app.ExitErrHandler = func(*cli.Context, error) {}
	app.OnUsageError = onUsage
	app.Version = strings.TrimSpace(Version + " " + Revision())
	cli.VersionPrinter = func(c *cli.Context) { fmt.Fprintln(c.App.Writer, c.App.Name, c.App.Version) }
	app.HideHelpCommand = true
	app.CommandNotFound = nil
	app.EnableBashCompletion = true
	app.Action = noCommand
	for _, c := range app.Commands {
		c.OnUsageError = onUsage
		c.HideHelpCommand = true
		action := c.Action
		c.Action = func(c *cli.Context) error {
			if err := noEmpty(c); err != nil {
				return err
			}
			return action(c)
		}
	}
}

// texts are the flags whose value may be nothing: what they hold is said to the model.
var texts = []string{"prompt", "system"}

// noEmpty refuses a flag that was given without a value: --out "$DIR" where DIR is not set means something else than no --out.
func noEmpty(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if !c.IsSet(name) || slices.Contains(texts, name) {
			continue
		}
		empty := false
		switch f.(type) {
		case *cli.StringFlag:
			empty = c.String(name) == ""
		case *cli.StringSliceFlag:
			empty = slices.Contains(c.StringSlice(name), "")
		}
		if empty {
			return format.Hint(Usagef("--%s: the value is empty", name), "give one, or leave --"+name+" out")
		}
	}
	return nil
}

func onUsage(c *cli.Context, err error, _ bool) error {
	name, flags := c.App.Name, c.App.Flags
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != name {
		name, flags = name+" "+c.Command.Name, c.Command.Flags
	}
	see := "see " + name + " --help"
	if _, typed, ok := strings.Cut(err.Error(), "provided but not defined: -"); ok {
		typed = strings.TrimLeft(typed, "-")
		var names []string
		for _, f := range flags {
			names = append(names, f.Names()...)
		}
		err = fmt.Errorf("no flag --%s", typed)
		if near := nearest(typed, names); near != "" {
			see = "did you mean --" + near + "? " + see
		}
	}
	return format.Hint(usageError{err}, see)
}

// noCommand is what runs when the first argument names no command.
func noCommand(c *cli.Context) error {
	see := "see " + c.App.Name + " --help"
	if !c.Args().Present() {
		return format.Hint(Usagef("no command given"), see)
	}
	typed := c.Args().First()
	var names []string
	for _, x := range c.App.Commands {
		names = append(names, x.Name)
	}
	if near := nearest(typed, names); near != "" {
		see = "did you mean " + c.App.Name + " " + near + "? " + see
	}
	return format.Hint(Usagef("no command %q", typed), see)
}

// SignalContext is cancelled by the first SIGINT or SIGTERM; the next one has its usual effect.
func SignalContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
