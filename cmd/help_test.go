package cmd_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestHelp holds that every flag of every command that takes a value names it, that defaults are not said twice, and that
// --version and completion are there.
func TestHelp(t *testing.T) {
	command := regexp.MustCompile(`(?m)^   ([a-z-]+)  +\S`)
	for _, prog := range []string{"npprep", "nprun"} {
		commands := command.FindAllStringSubmatch(section(run(t, prog, "--help"), "COMMANDS:"), -1)
		if len(commands) < 10 {
			t.Fatalf("%s has %d commands", prog, len(commands))
		}
		for _, c := range commands {
			for _, line := range strings.Split(section(run(t, prog, c[1], "--help"), "OPTIONS:"), "\n") {
				if strings.Contains(line, " value") && regexp.MustCompile(`^   --\S+( value|, .* value)`).MatchString(line) {
					t.Errorf("%s %s: a flag takes an unnamed value: %s", prog, c[1], line)
				}
			}
		}
		if out := run(t, prog, "--version"); !strings.HasPrefix(out, prog+" ") || strings.Count(out, "\n") != 1 {
			t.Errorf("%s --version: %q", prog, out)
		}
		if out := run(t, prog, "--generate-bash-completion"); !strings.Contains(out, "inspect\n") && !strings.Contains(out, "inspect:") {
			t.Errorf("%s offers no commands: %q", prog, out)
		}
		if out := run(t, prog, "inspect", "--rec", "--generate-bash-completion"); !strings.Contains(out, "--record") {
			t.Errorf("%s inspect offers no flags: %q", prog, out)
		}
		if out := run(t, prog, "completion", "fish"); !strings.Contains(out, "inspect") {
			t.Errorf("%s completes no commands", prog)
		}
	}
	if strings.Contains(run(t, "nprun", "chat", "--help"), "--json") {
		t.Error("chat lists --json, which it has no use for")
	}
}

// TestEmptyFlags holds, for every flag of every command that takes a value, that an empty one is a wrong command line that
// names the flag; a prompt and a system message may be empty.
func TestEmptyFlags(t *testing.T) {
	command := regexp.MustCompile(`(?m)^   ([a-z-]+)  +\S`)
	flag := regexp.MustCompile(`(?m)^   --([a-z-]+)(?:, -[^ ]+)* [A-Z]`)
	seen := 0
	for _, prog := range []string{"npprep", "nprun"} {
		for _, c := range command.FindAllStringSubmatch(section(run(t, prog, "--help"), "COMMANDS:"), -1) {
			for _, f := range flag.FindAllStringSubmatch(section(run(t, prog, c[1], "--help"), "OPTIONS:"), -1) {
				if f[1] == "prompt" || f[1] == "system" {
					continue
				}
				seen++
				if o, e, code := tool(t, prog, c[1], "--"+f[1], ""); code != 2 || o != "" || !strings.Contains(e, "-"+f[1]) {
					t.Errorf("%s %s --%s \"\": exit %d, stdout %q, stderr %q", prog, c[1], f[1], code, o, e)
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d flags", seen)
	}
}

// section is what stands under a heading of a help text.
func section(help, heading string) string {
	_, rest, _ := strings.Cut(help, heading)
	if i := strings.Index(rest, "\n\n"); i >= 0 {
		rest = rest[:i]
	}
	return rest
}
