package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/chat"
)

// command runs a line that begins with a slash; it reports whether the talk is over.
func (v *conversation) command(line string) (leave bool) {
	name, arg, _ := strings.Cut(line, " ")
	arg = strings.TrimSpace(arg)
	switch name {
	case "/exit", "/quit", "/bye":
		return true
	case "/help":
		fmt.Fprint(v.say, "/system [TEXT]  show or set the system message; \"\" removes it\n/reset          forget the conversation\n"+
			"/stats          show speed, memory and reads\n/save FILE      write the conversation; /save! replaces a file\n/exit           leave (Ctrl-D too)\n"+
			"A line that ends in \\ goes on in the next; \"\"\" begins and ends a longer message; Ctrl-C stops an answer.\n")
	case "/system":
		switch arg {
		case "":
			if v.system == "" {
				fmt.Fprintln(v.say, "no system message")
			} else {
				fmt.Fprintln(v.say, v.system)
			}
		case `""`:
			v.system = ""
		default:
			v.system = arg
		}
	case "/reset":
		v.msgs, v.skip = nil, 0
		v.e.Reset()
		fmt.Fprintln(v.say, "the conversation is forgotten")
	case "/stats":
		collect(v.e, v.bundle).print(v.say)
		fmt.Fprintf(v.say, "context  %d of %d tokens, %d messages\n", v.e.Len(), v.e.Context(), len(v.msgs))
	case "/save", "/save!":
		if err := v.save(arg, name == "/save!"); err != nil {
			clix.PrintError(v.say, "nprun", err)
		} else {
			fmt.Fprintf(v.say, "%d messages written to %s\n", len(v.all()), arg)
		}
	default:
		fmt.Fprintf(v.say, "no command %s; /help lists them, //TEXT sends a message that begins with /\n", name)
	}
	return false
}

// save writes the conversation: as an API request's messages for a name in .json, else as text.
func (v *conversation) save(file string, replace bool) error {
	if file == "" {
		return format.Hint(format.Inputf("/save: no file named"), "/save talk.json")
	}
	if _, err := os.Lstat(file); !replace && !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return format.IOf("%s: %w", file, err)
		}
		return format.Hint(format.Inputf("%s: there already", file), "/save! "+file+" replaces it")
	}
	return format.WriteFileAtomic(file, func(w io.Writer) error {
		if strings.EqualFold(filepath.Ext(file), ".json") {
			return writeMessages(w, v.all())
		}
		for _, m := range v.all() {
			if _, err := fmt.Fprintf(w, "%s:\n%s\n\n", m.Role, strings.TrimSpace(m.Content)); err != nil {
				return err
			}
		}
		return nil
	})
}

func writeMessages(w io.Writer, msgs []chat.Message) error {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	out := struct {
		Messages []message `json:"messages"`
	}{[]message{}}
	for _, m := range msgs {
		out.Messages = append(out.Messages, message(m))
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}
