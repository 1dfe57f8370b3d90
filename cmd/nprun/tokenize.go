package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/runtime/tokenizer"
)

func tokenizeCommand() *cli.Command {
	return &cli.Command{
		Name:  "tokenize",
		Usage: "turn text into token ids, or ids into text",
		Description: "Examples:\n  nprun tokenize -b BUNDLE --text book.txt --json\n  echo \"hello world\" | nprun tokenize -b BUNDLE --text - --no-special\n" +
			"  nprun tokenize -b BUNDLE --ids 504,3575,282",
		Flags: []cli.Flag{
			bundleFlag(),
			&cli.StringFlag{Name: "text", Usage: "`FILE` to encode; - reads stdin"},
			&cli.StringFlag{Name: "ids", Usage: "token `IDS` to decode, separated by commas"},
			&cli.BoolFlag{Name: "no-special", Usage: "add no special tokens around the text"},
			clix.JSONFlag(),
		},
		Action: tokenize,
	}
}

func tokenize(c *cli.Context) error {
	if c.IsSet("text") == c.IsSet("ids") {
		return clix.Usagef("give either --text or --ids")
	}
	dir, err := bundleDir(c)
	if err != nil {
		return err
	}
	b, err := bundle.Open(dir)
	if err != nil {
		return err
	}
	t, err := tokenizer.Load(b.Path(bundle.MemberTokenizer))
	if err != nil {
		return err
	}
	var ids []int32
	if c.IsSet("ids") {
		if ids, err = parseIDs(c.String("ids"), b.Manifest.Model.Vocab); err != nil {
			return err
		}
		if !c.Bool("json") {
			fmt.Fprintln(stdout, t.Decode(ids, false))
			return nil
		}
	} else {
		text, err := readText(c.String("text"))
		if err != nil {
			return err
		}
		ids = t.Encode(text, !c.Bool("no-special"))
	}
	tokens := make([]string, len(ids))
	for i, id := range ids {
		tokens[i], _ = t.Token(id)
	}
	if c.Bool("json") {
		out := struct {
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
			Text   *string  `json:"text,omitempty"`
		}{append([]int32{}, ids...), tokens, nil}
		if c.IsSet("ids") {
			s := t.Decode(ids, false)
			out.Text = &s
		}
		return clix.WriteJSON(stdout, out)
	}
	var s strings.Builder
	for i, id := range ids {
		if i > 0 {
			s.WriteByte(' ')
		}
		s.WriteString(strconv.Itoa(int(id)))
	}
	fmt.Fprintln(stdout, s.String())
	return nil
}

// readText reads a UTF-8 file, or stdin for "-".
func readText(path string) (string, error) {
	if path == "-" {
		return promptText("-")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", format.Hint(format.Inputf("--text: %w", err), "--text takes a FILE; - reads stdin")
	}
	if !utf8.Valid(b) {
		return "", format.Inputf("%s: not UTF-8 text", path)
	}
	return string(b), nil
}

// parseIDs reads token ids separated by commas or white space.
func parseIDs(s string, vocab int) ([]int32, error) {
	var ids []int32
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' || r == '\r' }) {
		n, err := strconv.Atoi(w)
		if err != nil || n < 0 || n >= vocab {
			return nil, format.Inputf("token id %q is not a number in 0..%d", w, vocab-1)
		}
		ids = append(ids, int32(n))
	}
	return ids, nil
}
