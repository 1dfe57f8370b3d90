package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/format"
	"neuroprefetcher/runtime/serve"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "answer OpenAI-shaped requests over HTTP, and show a page to chat with",
		Description: "Serves /v1/models, /v1/completions and /v1/chat/completions, streamed or not, a page at /, /healthz, /metrics for Prometheus\n" +
			"and /stats. One request runs at a time, the others queue; a request whose client leaves is dropped. Ctrl-C stops the\n" +
			"server once the requests that are in are answered, at the latest after --grace. A request without a temperature is sampled\n" +
			"at 1, as OpenAI's are; 0 always takes the likeliest token.\n\n" +
			"It listens on this machine only, unless there is an --api-key-file: one key per line, any of which a request sends as\n" +
			"  Authorization: Bearer KEY\n\nExamples:\n" +
			"  nprun serve -b BUNDLE\n  nprun serve -b BUNDLE --listen 0.0.0.0:8080 --api-key-file keys.txt\n" +
			"  curl localhost:8080/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"temperature\":0,\"stream\":true}'",
		Flags: withOwn(engineFlags(),
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8080", Usage: "`ADDRESS` to listen on; port 0 takes a free one"},
			&cli.StringFlag{Name: "api-key-file", Usage: "`FILE` of keys, one per line; needed to listen on other than this machine's own addresses"},
			&cli.StringFlag{Name: "model-name", Usage: "the model's `ID`; default: the name of the bundle's folder, or of the one above for bundle and bundle-…"},
			&cli.IntFlag{Name: "queue", Value: 16, Usage: "`N` requests may wait; more are told to come back later (429)"},
			&cli.StringFlag{Name: "max-body", Value: "2MiB", Usage: "`SIZE` of the largest request"},
			&cli.DurationFlag{Name: "grace", Value: 30 * time.Second, Usage: "`TIME` that requests may go on after Ctrl-C"},
			&cli.StringSliceFlag{Name: "allow-origin", Usage: "web `ORIGIN` whose pages may use the server, as https://example.org; * for all"}),
		Action: runServe,
	}
}

func runServe(c *cli.Context) error {
	if _, err := engineOptions(c); err != nil { // what is wrong with the command line shows before anything is done
		return err
	}
	o := serve.Options{Queue: c.Int("queue"), Grace: c.Duration("grace"), Origins: c.StringSlice("allow-origin"), Version: clix.Version, Log: notes(c), Model: c.String("model-name")}
	if o.Queue < 1 || o.Grace <= 0 {
		return clix.Usagef("--queue %d --grace %v: want positive values", o.Queue, o.Grace)
	}
	n, err := clix.ParseSize(c.String("max-body"))
	if err != nil || n < 1 {
		return clix.Usagef("--max-body %s: want a size", c.String("max-body"))
	}
	o.MaxBody = n
	if file := c.String("api-key-file"); file != "" {
		if o.Keys, err = readKeys(file); err != nil {
			return err
		}
	}
	if o.Loopback, err = isLoopback(c.String("listen")); err != nil {
		return err
	}
	if !o.Loopback && len(o.Keys) == 0 {
		return format.Hint(clix.Usagef("--listen %s: other machines could use the server without a key", c.String("listen")), "give --api-key-file FILE, or listen on 127.0.0.1")
	}
	// The address first: what is wrong with it should not show after minutes of loading.
	l, err := net.Listen("tcp", c.String("listen"))
	if err != nil {
		return format.Hint(format.IOf("--listen %s: %w", c.String("listen"), err), "another program may listen there; --listen 127.0.0.1:0 takes a free port")
	}
	defer l.Close()
	e, err := open(c)
	if err != nil {
		return err
	}
	defer e.Close()
	if e.Bundle.Has("chat_template.jinja") {
		if o.Template, err = newTemplate(e); err != nil {
			return err
		}
		b, err := os.ReadFile(e.Bundle.Path("chat_template.jinja"))
		if err != nil {
			return format.IOf("%w", err)
		}
		o.TemplateText = string(b)
	} else {
		fmt.Fprintln(notes(c), "note: the model has no chat template: /v1/chat/completions is refused, /v1/completions works")
	}
	if o.Model == "" {
		o.Model = modelName(c.String("bundle"))
	}
	s, err := serve.New(e, o)
	if err != nil {
		return err
	}
	defer s.Close()
	url := "http://" + l.Addr().String()
	if c.Bool("json") {
		err = clix.WriteJSON(stdout, map[string]any{"url": url, "model": o.Model, "mode": e.Plan.Mode})
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(notes(c), "serving %s (%s mode) on %s: a page there, the API under /v1; Ctrl-C stops\n", o.Model, e.Plan.Mode, url)
	err = s.Serve(c.Context, l)
	fmt.Fprintln(notes(c), "stopped")
	return err
}

// modelName is the name of the bundle's folder; where that is bundle or bundle-x, the name of the one above stands for
// the word.
func modelName(dir string) string {
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = dir
	}
	name := filepath.Base(abs)
	if rest, ok := strings.CutPrefix(name, "bundle"); ok && (rest == "" || rest[0] == '-') {
		if up := filepath.Base(filepath.Dir(abs)); up != "." && up != "/" {
			name = up + rest
		}
	}
	return name
}

func readKeys(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, format.Inputf("--api-key-file: %w", err)
	}
	if len(b) > 1<<20 || !utf8.Valid(b) {
		return nil, format.Inputf("--api-key-file %s: not a text of at most 1 MiB", file)
	}
	var keys []string
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if k := strings.TrimSpace(s.Text()); k != "" && !strings.HasPrefix(k, "#") {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil, format.Hint(format.Inputf("--api-key-file %s: no key in it", file), "write one key per line")
	}
	return keys, nil
}

// isLoopback reports whether only this machine can reach the address.
func isLoopback(addr string) (bool, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false, format.Hint(clix.Usagef("--listen %s: %v", addr, err), "write HOST:PORT, as 127.0.0.1:8080")
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}
