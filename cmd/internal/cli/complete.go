package clix

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// The scripts ask the program itself what may come next; where it knows nothing, file names are completed.
const (
	bashScript = `_%[1]s() {
  local cur="${COMP_WORDS[COMP_CWORD]}" words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  [[ $cur == -* ]] && words+=("$cur")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _%[1]s %[1]s
`
	zshScript = `#compdef %[1]s
_%[1]s() {
  local -a opts; local cur=${words[CURRENT]}; local -a before=("${(@)words[1,CURRENT-1]}")
  [[ $cur == -* ]] && before+=("$cur")
  opts=("${(@f)$("${before[@]}" --generate-bash-completion 2>/dev/null)}")
  if [[ -n "${opts[1]}" ]]; then compadd -- "${(@)opts%%%%:*}"; else _files; fi
}
compdef _%[1]s %[1]s
`
)

// CompletionCommand prints what a shell needs to complete the program's commands and flags.
func CompletionCommand(prog string) *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that makes a shell complete commands and flags", ArgsUsage: "bash|zsh|fish",
		Description: "Examples:\n   source <(" + prog + " completion bash)          # for this shell; in ~/.bashrc for all\n" +
			"   source <(" + prog + " completion zsh)           # after compinit, in ~/.zshrc\n" +
			"   " + prog + " completion fish > ~/.config/fish/completions/" + prog + ".fish",
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return Usagef("completion wants one of bash, zsh and fish")
			}
			switch shell := c.Args().First(); shell {
			case "bash":
				_, err := fmt.Fprintf(c.App.Writer, bashScript, prog)
				return err
			case "zsh":
				_, err := fmt.Fprintf(c.App.Writer, zshScript, prog)
				return err
			case "fish":
				s, err := c.App.ToFishCompletion()
				if err == nil {
					_, err = fmt.Fprint(c.App.Writer, s)
				}
				return err
			default:
				return Usagef("completion %s: want bash, zsh or fish", shell)
			}
		},
	}
}

// nearest is the name that a mistyped one may have meant; "" where none is near.
func nearest(typed string, names []string) string {
	best, least := "", 3
	if len(typed) < 5 {
		least = 2 // of short names, one letter may be wrong
	}
	for _, n := range names {
		if len(n) < 2 {
			continue // a letter is near to everything
		}
		if d := distance(typed, n); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to change, add, take away, or exchange with their neighbour.
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
