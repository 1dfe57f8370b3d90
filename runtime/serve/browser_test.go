package serve

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"neuroprefetcher/runtime/chat"
	"neuroprefetcher/runtime/engine"
	"neuroprefetcher/runtime/engine/enginetest"
)

// browser drives a headless Chromium over its debugging pipe: messages are JSON with a zero byte behind each.
type browser struct {
	t       *testing.T
	w       io.Writer
	session string
	mu      sync.Mutex
	next    int
	waiting map[int]chan json.RawMessage
	console []string // errors
}

// launch starts the browser, or skips the test where there is none.
func launch(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skip("no chromium: the page is NOT tested in a browser")
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--remote-debugging-pipe", "about:blank")
	in, toBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromBrowser, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{in, out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	b := &browser{t: t, w: toBrowser, waiting: map[int]chan json.RawMessage{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		b.read(fromBrowser)
	}()
	t.Cleanup(func() {
		b.call("", "Browser.close", nil)
		cmd.Wait()
		toBrowser.Close()
		<-read
		fromBrowser.Close()
	})
	var target struct{ TargetID string }
	json.Unmarshal(b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}), &target)
	var attached struct{ SessionID string }
	json.Unmarshal(b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &attached)
	b.session = attached.SessionID
	for _, d := range []string{"Page", "Runtime", "Log"} {
		b.do(d+".enable", nil)
	}
	return b
}

func (b *browser) read(r io.Reader) {
	br := bufio.NewReaderSize(r, 1<<20)
	for {
		raw, err := br.ReadBytes(0)
		if err != nil {
			return
		}
		var m struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
			Params struct {
				Type  string
				Entry struct{ Level, Text, URL string }
			} `json:"params"`
		}
		if json.Unmarshal(raw[:len(raw)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			if c := b.waiting[m.ID]; c != nil {
				if m.Error != nil {
					b.console = append(b.console, "debugger: "+string(m.Error))
				}
				c <- m.Result
				delete(b.waiting, m.ID)
			}
		case m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled" && m.Params.Type == "error", m.Method == "Log.entryAdded" && m.Params.Entry.Level == "error":
			b.console = append(b.console, string(raw[:len(raw)-1]))
		}
		b.mu.Unlock()
	}
}

func (b *browser) call(session, method string, params map[string]any) json.RawMessage {
	c := make(chan json.RawMessage, 1)
	b.mu.Lock()
	b.next++
	m := map[string]any{"id": b.next, "method": method}
	b.waiting[b.next] = c
	b.mu.Unlock()
	if params != nil {
		m["params"] = params
	}
	if session != "" {
		m["sessionId"] = session
	}
	raw, _ := json.Marshal(m)
	b.w.Write(append(raw, 0))
	select {
	case r := <-c:
		return r
	case <-time.After(2 * time.Minute):
		if method != "Browser.close" {
			b.t.Fatalf("the browser does not answer %s", method)
		}
		return nil
	}
}

func (b *browser) do(method string, params map[string]any) json.RawMessage {
	b.t.Helper()
	return b.call(b.session, method, params)
}

// js evaluates an expression to a string.
func (b *browser) js(expr string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	json.Unmarshal(b.do("Runtime.evaluate", map[string]any{"expression": expr, "returnByValue": true, "awaitPromise": true}), &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expr, r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

func (b *browser) until(expr string) {
	b.t.Helper()
	for range 2400 {
		if b.js("Boolean("+expr+")") == "true" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatalf("waited two minutes for %s; the page says %.600q", expr, b.js("document.body.innerText"))
}

func (b *browser) typed(text string) { b.do("Input.insertText", map[string]any{"text": text}) }

func (b *browser) press(key, code string, number, modifiers int, text string) {
	p := map[string]any{"type": "keyDown", "key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
	if text != "" {
		p["text"] = text
	}
	b.do("Input.dispatchKeyEvent", p)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers})
}

// click clicks in the middle of an element, as a user would: something that lies over it gets the click.
func (b *browser) click(selector string) {
	b.t.Helper()
	var at struct{ X, Y float64 }
	json.Unmarshal([]byte(b.js(fmt.Sprintf(`(() => { const r = document.querySelector(%q).getBoundingClientRect(); return JSON.stringify({X: r.x + r.width/2, Y: r.y + r.height/2}); })()`, selector))), &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1})
	}
}

func (b *browser) screen(width, height int, dark bool) {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// shot writes a picture into the folder that NP_SHOTS names, if it does.
func (b *browser) shot(name string) {
	dir := os.Getenv("NP_SHOTS")
	if dir == "" {
		return
	}
	var r struct{ Data string }
	json.Unmarshal(b.do("Page.captureScreenshot", map[string]any{"format": "png"}), &r)
	png, err := base64.StdEncoding.DecodeString(r.Data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestPageInBrowser clicks and types through the page: an answer is the engine's own, stop stops the engine, settings
// reach it, errors are shown, the panel has its figures, the phone's width is kept, and the console stays empty.
func TestPageInBrowser(t *testing.T) {
	b := launch(t)
	o := engine.Options{Mode: engine.ModeSparse, Dense: 2, Context: 512}
	s := open(t, enginetest.Tiny(t), o, Options{Model: "tiny"})
	ref := enginetest.Open(t, enginetest.Tiny(t), o)
	b.screen(1280, 800, false)
	b.do("Page.navigate", map[string]any{"url": s.url + "/"})
	b.until(`document.title.startsWith("tiny") && document.activeElement.id === "text"`)

	set := func(name, value string) {
		b.js(fmt.Sprintf(`(() => { const e = document.getElementById("s-%s"); e.value = %q; e.dispatchEvent(new Event("change")); })()`, name, value))
	}
	set("temperature", "0")
	set("max_tokens", "40")
	set("system", "Be brief.")
	b.js(`document.getElementById("text").focus()`)
	b.typed("Tell me a story.")
	b.press("Enter", "Enter", 13, 8, "\r") // Shift: a new line
	b.typed("Of the mill.")
	b.press("Enter", "Enter", 13, 0, "\r")
	b.until(`document.querySelector(".under") && !document.querySelector(".waiting")`)
	ids, err := s.o.Template.Encode(ref.Tokenizer, []chat.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Tell me a story.\nOf the mill."}}, true)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ref.Generate(context.Background(), engine.Request{Prompt: ids, MaxTokens: 40}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.js(`document.querySelector(".msg.assistant").textContent`); got != strings.TrimLeft(want.Text, " ") {
		t.Errorf("the page shows %q, the engine says %q", got, want.Text)
	}
	b.until(`document.querySelectorAll("#layers li.sparse").length === 4 && document.querySelectorAll("#layers li.dense").length === 2`)
	b.until(`document.querySelectorAll("#time-legend span").length === 12 && /of 1.00 GiB/.test(document.getElementById("mem-budget").textContent)`)
	b.until(`/reads of/.test(document.getElementById("read-note").textContent) && /tok\/s/.test(document.getElementById("speed").textContent)`)
	b.shot("wide-light")

	// A second turn goes on from the cache; an answer without end is stopped by Esc, and the engine with it.
	b.typed("And then?")
	b.press("Enter", "Enter", 13, 0, "\r")
	b.until(`document.querySelectorAll(".under").length === 2 && /from cache/.test(document.querySelectorAll(".under")[1].textContent)`)
	stop := s.busy(t) // so that the answer waits
	b.typed("More.")
	b.press("Enter", "Enter", 13, 0, "\r")
	b.until(`document.getElementById("send").textContent === "Stop"`)
	waitFor(t, "the page's request to wait", func() bool { return s.q.len() == 1 })
	b.press("Escape", "Escape", 27, 0, "")
	b.until(`document.querySelectorAll(".under").length === 3 && /stopped/.test(document.querySelectorAll(".under")[2].textContent)`)
	waitFor(t, "the page's request to leave", func() bool { return s.q.len() == 0 })
	stop()

	// An error is shown where the answer would be, and the message comes back into the box. The browser logs a 400.
	set("temperature", "1000")
	b.js(`document.getElementById("text").focus()`)
	b.typed("Boil.")
	b.press("Enter", "Enter", 13, 0, "\r")
	b.until(`document.querySelector("[role=alert]") && /temperature/.test(document.querySelector("[role=alert]").textContent) && document.getElementById("text").value === "Boil."`)
	set("temperature", "0")
	b.click("#new")
	b.until(`document.querySelectorAll(".msg").length === 0 && document.querySelector(".hello")`)

	// The keyboard reaches everything that can be used, and what has the focus can be seen.
	seen := map[string]bool{}
	b.js(`document.activeElement.blur()`)
	for range 40 {
		b.press("Tab", "Tab", 9, 0, "")
		if id := b.js(`document.activeElement.id`); id != "" {
			seen[id] = true
			if b.js(`getComputedStyle(document.activeElement).outlineStyle`) == "none" {
				t.Errorf("#%s shows no focus", id)
			}
		}
	}
	for _, id := range []string{"new", "log", "text", "send", "s-system", "s-temperature", "s-max_tokens", "s-top_p", "s-top_k", "s-min_p", "s-seed", "s-stop", "s-key"} {
		if !seen[id] {
			t.Errorf("Tab does not reach #%s", id)
		}
	}

	for _, dark := range []bool{false, true} {
		b.screen(390, 780, dark)
		b.js(`document.getElementById("text").value = ""; document.getElementById("text").focus()`)
		b.typed("Where is the mill? " + strings.Repeat("Averylongwordthatdoesnotfit", 6))
		b.press("Enter", "Enter", 13, 0, "\r")
		b.until(`!document.querySelector(".waiting") && document.querySelector(".under:last-child")`)
		name := map[bool]string{false: "phone-light", true: "phone-dark"}[dark]
		b.shot(name)
		fits := func(what string) {
			t.Helper()
			if b.js(`document.documentElement.scrollWidth <= innerWidth && document.querySelector("#log").scrollWidth <= innerWidth`) != "true" {
				t.Errorf("%s, %s: wider than the screen", name, what)
			}
		}
		fits("chat")
		b.click("#panel-toggle")
		b.until(`getComputedStyle(document.getElementById("panel")).visibility === "visible"`)
		fits("panel")
		b.shot(name + "-panel")
		b.click("#panel-toggle")
		b.until(`getComputedStyle(document.getElementById("panel")).visibility === "hidden"`)
	}
	b.screen(1280, 800, true)
	b.shot("wide-dark")

	// A model without a chat template is continued; a server with a key wants it in the settings.
	rig := alphaBeta()
	rig.Template = ""
	raw := open(t, rig.Bundle(t), engine.Options{}, Options{Model: "raw", Keys: []string{"k"}})
	b.do("Page.navigate", map[string]any{"url": raw.url + "/"})
	b.until(`/API key/.test(document.getElementById("offline")?.textContent)`)
	set("key", "k")
	set("temperature", "0")
	set("system", "")
	b.until(`document.title.startsWith("raw") && document.getElementById("offline").textContent === "" && /no chat template/.test(document.querySelector(".hello").textContent)`)
	b.js(`document.getElementById("text").focus()`)
	b.typed("x")
	b.press("Enter", "Enter", 13, 0, "\r")
	b.until(`document.querySelector(".under") && document.querySelector(".msg.assistant").textContent === "alpha beta"`)
	if got := b.js(`document.getElementById("layers-note").textContent`); got != "All 3 layers' MLPs are in memory." {
		t.Errorf("layers: %q", got)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.console {
		if !strings.Contains(line, "400 (Bad Request)") && !strings.Contains(line, "401 (Unauthorized)") { // the browser logs these itself
			t.Errorf("console: %s", line)
		}
	}
}
