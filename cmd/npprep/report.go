package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	clix "neuroprefetcher/cmd/internal/cli"
	"neuroprefetcher/cmd/internal/plots"
	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/prep/stage"
)

// maxFigure bounds a picture that the report takes in.
const maxFigure = 4 << 20

// reportPage is one file with everything in it: no script, nothing fetched.
var reportPage = template.Must(template.New("report").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}
th{font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums}
.k{color:#666}figure{margin:1rem 0}figure svg{max-width:100%;height:auto}
</style></head><body>
<h1>{{.Title}}</h1>
<table>{{range .Facts}}<tr><td class="k">{{.Key}}</td><td>{{.Value}}</td></tr>{{end}}</table>
<h2>Stages</h2>
<table><tr><th>stage</th><th>took</th><th>peak memory</th><th></th></tr>
{{range .Stages}}<tr><td>{{.Name}}</td><td class="n">{{.Took}}</td><td class="n">{{.Peak}}</td><td>{{if .Skipped}}was up to date{{end}}</td></tr>{{end}}</table>
{{range .Figures}}<figure>{{.}}</figure>{{end}}
{{range .Stages}}{{if .Values}}<h2>{{.Name}}</h2>
<table>{{range .Values}}<tr><td class="k">{{.Key}}</td><td class="n">{{.Value}}</td></tr>{{end}}</table>{{end}}{{end}}
</body></html>
`))

type reportFact struct{ Key, Value string }

type reportStage struct {
	Name, Took, Peak string
	Skipped          bool
	Values           []reportFact
}

// writeReport gathers what the stages reported, the bundle's own words and the figures of WORK/plots in WORK/report.html,
// and returns that file.
func writeReport(work, model, out string, rs []stage.Report) (string, error) {
	page := struct {
		Title   string
		Facts   []reportFact
		Stages  []reportStage
		Figures []template.HTML
	}{Title: "Preparation of " + filepath.Base(out)}
	fact := func(key, text string, a ...any) {
		page.Facts = append(page.Facts, reportFact{key, fmt.Sprintf(text, a...)})
	}
	fact("checkpoint", "%s", model)
	fact("bundle", "%s", out)
	b, err := bundle.Open(out)
	if err != nil {
		return "", err
	}
	m := b.Manifest
	fact("model", "%s, %d layers, hidden size %d, %d neurons in a layer", m.Model.ModelType, m.Model.Layers, m.Model.Hidden, m.Rows.Neurons)
	fact("records", "%s, %s each, %s in all", m.Rows.DType, clix.FormatSize(int64(m.Rows.Stride)), clix.FormatSize(m.Rows.FileSize()))
	if s := m.Sparse; s != nil {
		fact("sparse", "K_max %d of %d (sparsity %.2f), selectors %v", s.KMax, m.Rows.Neurons, s.Sparsity, s.Selectors)
	} else {
		fact("sparse", "no: made with --dense")
	}
	fact("made by", "%s", m.Tool)
	times := plots.Figure{Kind: plots.Bars, Title: "Time of the stages", Note: "of those that were up to date, of the run that made them", Y: plots.Axis{Label: "time", Unit: "s"}, Values: true, Series: []plots.Series{{}}}
	peaks := plots.Figure{Kind: plots.Bars, Title: "Peak memory of the stages", Y: plots.Axis{Label: "peak memory", Unit: "MiB"}, Values: true, Series: []plots.Series{{}}}
	for _, r := range rs {
		s := reportStage{Name: r.Stage, Took: clix.Duration(time.Duration(r.Seconds * float64(time.Second))), Peak: clix.FormatSize(r.PeakRSS), Skipped: r.Skipped}
		var keys []string
		for k := range r.Values {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			s.Values = append(s.Values, reportFact{k, show(k, r.Values[k])})
		}
		page.Stages = append(page.Stages, s)
		for f, v := range map[*plots.Figure]float64{&times: r.Seconds, &peaks: float64(r.PeakRSS) / (1 << 20)} {
			f.Categories = append(f.Categories, r.Stage)
			f.Series[0].Y = append(f.Series[0].Y, v)
		}
	}
	for _, f := range []plots.Figure{times, peaks} {
		svg, err := plots.SVG(f)
		if err != nil {
			return "", err
		}
		page.Figures = append(page.Figures, template.HTML(svg))
	}
	drawn, err := filepath.Glob(filepath.Join(work, "plots", "*.svg"))
	if err != nil {
		return "", err
	}
	for _, path := range drawn {
		svg, err := format.ReadFile(path, maxFigure)
		if err != nil {
			return "", err
		}
		// As a picture, which runs nothing: the file may be anybody's.
		page.Figures = append(page.Figures, picture(filepath.Base(path), svg))
	}
	var buf bytes.Buffer
	if err := reportPage.Execute(&buf, page); err != nil {
		return "", err
	}
	path := filepath.Join(work, "report.html")
	if err := os.MkdirAll(work, 0o777); err != nil {
		return "", format.IOf("%w", err)
	}
	return path, format.WriteFileAtomicSize(path, int64(buf.Len()), func(w io.Writer) error {
		_, err := w.Write(buf.Bytes())
		return err
	})
}

// picture is an <img> that holds the file itself.
func picture(name string, svg []byte) template.HTML {
	var b bytes.Buffer
	template.Must(template.New("").Parse(`<img alt="{{.Name}}" style="max-width:100%" src="{{.Data}}">`)).Execute(&b, map[string]any{
		"Name": name, "Data": template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(svg))})
	return template.HTML(b.String())
}

// maxReports bounds report.json.
const maxReports = 64 << 20

// withReport lets prepare end by writing its report.
func withReport(c *cli.Command) *cli.Command {
	action := c.Action
	c.Action = func(c *cli.Context) error {
		if err := action(c); err != nil {
			return err
		}
		out, work := filepath.Clean(c.String("out")), c.String("work")
		if work == "" {
			work = out + ".work"
		}
		b, err := format.ReadFile(filepath.Join(work, "report.json"), maxReports)
		if err != nil {
			return err
		}
		var kept struct {
			Stages []stage.Report `json:"stages"`
		}
		if err := json.Unmarshal(b, &kept); err != nil {
			return format.Corruptf("%s: %w", filepath.Join(work, "report.json"), err)
		}
		path, err := writeReport(work, c.String("model"), out, kept.Stages)
		if err == nil && !c.Bool("json") {
			_, err = fmt.Fprintf(c.App.Writer, "report     %s\nnext       nprun generate -b %s --prompt \"Once upon a time\"\n", path, out)
		}
		return err
	}
	return c
}
