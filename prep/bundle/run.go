package assemble

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/format/checkpoint"
	"neuroprefetcher/prep/cluster"
	"neuroprefetcher/prep/regress"
	"neuroprefetcher/prep/repack"
	"neuroprefetcher/prep/stage"
	"neuroprefetcher/prep/train"
	"neuroprefetcher/prep/vocab"
)

// Name of the stage and of its folder.
const Name = "bundle"

const version = 1

// What the tune stage leaves: see Tuned and bundle.MemberMeans.
const (
	TuneStage = "tune"
	TunedFile = "tuned.json"
	TuneOf    = "identity" // value of its report: the Identity of the bundle that was measured
)

// Tuned is the content of TunedFile.
type Tuned struct {
	Quality []bundle.Quality `json:"quality"`
	Means   []string         `json:"means,omitempty"` // selectors that bundle.MemberMeans is for
}

// publishedFile is the output that says which bundle was published.
const publishedFile = "published.json"

// Options of the stage.
type Options struct {
	Checkpoint *checkpoint.Checkpoint
	Out        string  // bundle directory
	Dense      bool    // no centroids and no predictor
	KMax       int     // neurons of a sparse layer; 0: from Sparsity
	Sparsity   float64 // 1 − K_max/M; used when KMax is 0
	Tool       string  // program and version, for the manifest

	// Selectors that the bundle has, first the default where nothing is measured; nil: DefaultSelectors, `lookahead` only if there are factors.
	Selectors []string
}

// DefaultSelectors are a bundle's where none are named.
var DefaultSelectors = []string{bundle.SelectorLookahead, bundle.SelectorPaper, bundle.SelectorStatic}

// CheckSelectors refuses unknown names and repetitions.
func CheckSelectors(names []string) error {
	for i, n := range names {
		switch {
		case bundle.SelectorMembers(n) == nil:
			return format.Inputf("selector %.40q is not known: there are lookahead, paper, paper+, centroid and static", n)
		case slices.Contains(names[:i], n):
			return format.Inputf("selector %s is named twice", n)
		}
	}
	return nil
}

// ResolveKMax gives K_max for a model with that many neurons a layer, from the wanted K_max or sparsity.
func ResolveKMax(kMax int, sparsity float64, neurons int) (int, error) {
	if kMax == 0 {
		if !(sparsity >= 0 && sparsity < 1) {
			return 0, format.Inputf("sparsity %v is not in 0..1", sparsity)
		}
		kMax = max(1, int(math.Round((1-sparsity)*float64(neurons))))
	}
	if kMax < 1 || kMax > neurons {
		return 0, format.Inputf("k-max %d is not in 1..%d, the neurons of a layer", kMax, neurons)
	}
	return kMax, nil
}

// Run publishes the bundle at o.Out from what the other stages left in the work folder.
func Run(ctx context.Context, e *stage.Env, o Options) (stage.Report, error) {
	if err := e.Lock(); err != nil { // from reading the other stages' records to the end
		return stage.Report{}, err
	}
	defer e.Unlock()
	a := &assembler{e: e, o: o}
	spec, err := a.spec()
	if err == nil {
		err = a.tuned(&spec)
	}
	if err != nil {
		return stage.Report{}, err
	}
	return stage.Run(ctx, e, spec, a.run)
}

// Identity names the bundle that Run would publish, but for what the tune stage finds.
func Identity(e *stage.Env, o Options) (string, error) {
	a := &assembler{e: e, o: o}
	spec, err := a.spec()
	if err != nil {
		return "", err
	}
	return a.identity(&spec)
}

// identity hashes what the bundle is made of, wherever it is published.
func (a *assembler) identity(spec *stage.Spec) (string, error) {
	params := maps.Clone(spec.Params.(map[string]any))
	delete(params, "out")
	var made []string
	for _, outputs := range []map[string]string{a.rows, a.pred, a.look, a.vocab, a.joint} {
		made = append(made, hashes(outputs)...)
	}
	b, err := json.Marshal([]any{params, made, spec.Inputs[len(a.o.Checkpoint.Files()):]})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(b)), nil
}

// tuned adds what the tune stage found of this bundle.
func (a *assembler) tuned(s *stage.Spec) error {
	if a.o.Dense || a.e.Values(TuneStage) == nil {
		return nil
	}
	id, err := a.identity(s)
	if err != nil || a.e.Values(TuneStage)[TuneOf] != id {
		return err
	}
	if a.tune, err = a.e.Outputs(TuneStage); err != nil {
		return err
	}
	s.Inputs, s.Reads = append(s.Inputs, hashes(a.tune)...), append(s.Reads, TuneStage)
	return nil
}

type assembler struct {
	e *stage.Env
	o Options

	kMax int
	rows map[string]string // outputs of repack → SHA-256
	pred map[string]string // outputs of train → SHA-256; nil if dense
	look map[string]string // outputs of regress → SHA-256; nil if dense or not run

	tune map[string]string // outputs of tune → SHA-256; nil if it did not measure this bundle

	vocab, joint map[string]string // of vocab and of its network's training; nil unless a selector needs them
}

// wants tells whether one of the selectors is to be in the bundle.
func (a *assembler) wants(selectors ...string) bool {
	names := a.o.Selectors
	if names == nil {
		names = DefaultSelectors
	}
	return slices.ContainsFunc(selectors, func(s string) bool { return slices.Contains(names, s) })
}

// spec says what the bundle depends on.
func (a *assembler) spec() (stage.Spec, error) {
	s := stage.Spec{Name: Name, Version: version, Inputs: a.o.Checkpoint.Files(), Check: a.published, Reads: []string{repack.Name}}
	var err error
	if a.rows, err = a.e.Outputs(repack.Name); err != nil {
		return s, err
	}
	s.Inputs = append(s.Inputs, hashes(a.rows)...)
	if !a.o.Dense {
		if a.kMax, err = ResolveKMax(a.o.KMax, a.o.Sparsity, a.o.Checkpoint.Config.Intermediate); err != nil {
			return s, err
		}
		for _, name := range []string{"capture", "cluster"} {
			out, err := a.e.Outputs(name)
			if err != nil {
				return s, err
			}
			s.Inputs = append(s.Inputs, hashes(out)...)
		}
		if err := CheckSelectors(a.o.Selectors); err != nil {
			return s, err
		}
		s.Reads = append(s.Reads, "capture", "cluster")
		for _, x := range []struct {
			stage   string
			outputs *map[string]string
			wanted  bool
		}{
			{"train", &a.pred, a.wants(bundle.SelectorPaper, bundle.SelectorPaperPlus)},
			{vocab.Name, &a.vocab, a.wants(bundle.SelectorPaperPlus, bundle.SelectorCentroid)},
			{train.JointName, &a.joint, a.wants(bundle.SelectorCentroid)},
		} {
			if !x.wanted {
				continue
			}
			if *x.outputs, err = a.e.Outputs(x.stage); err != nil {
				return s, err
			}
			s.Inputs = append(s.Inputs, hashes(*x.outputs)...)
			s.Reads = append(s.Reads, x.stage)
		}
		if a.wants(bundle.SelectorLookahead) {
			if a.look, err = a.e.Outputs(regress.Name); err == nil {
				s.Reads = append(s.Reads, regress.Name)
			} else if _, serr := os.Stat(a.stagePath(regress.Name, "")); serr == nil || a.o.Selectors != nil {
				// the stage may be left out, but one that was begun or damaged is no reason to leave its selector out
				return s, err
			}
		}
		s.Inputs = append(s.Inputs, hashes(a.look)...)
	}
	out, err := filepath.Abs(a.o.Out)
	if err != nil {
		return s, format.IOf("%w", err)
	}
	params := map[string]any{"out": out, "dense": a.o.Dense, "k_max": a.kMax, "tool": a.o.Tool, "model": a.o.Checkpoint.Config}
	if a.o.Selectors != nil {
		params["selectors"] = a.o.Selectors
	}
	s.Params = params
	return s, nil
}

func hashes(outputs map[string]string) []string {
	var names, hs []string
	for n := range outputs {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		hs = append(hs, outputs[n])
	}
	return hs
}

// published says why the bundle outside the work folder is not the one that was published.
func (a *assembler) published(ctx context.Context, values map[string]any) error {
	b, err := bundle.Open(a.o.Out)
	if err != nil {
		return err
	}
	h, err := stage.FileHash(filepath.Join(a.o.Out, bundle.MemberManifest))
	if err != nil {
		return err
	}
	if h != values["manifest_sha256"] {
		return fmt.Errorf("%s holds another bundle", a.o.Out)
	}
	for _, m := range b.Manifest.Members {
		h, err := a.e.FileHash(ctx, b.Path(m.Name))
		if err != nil {
			return err
		}
		if h != m.SHA256 {
			return fmt.Errorf("%s is damaged", b.Path(m.Name))
		}
	}
	return nil
}

// run builds and publishes.
func (a *assembler) run(ctx context.Context, dir string, p *stage.Progress) (map[string]any, error) {
	if err := CheckTokenizer(a.o.Checkpoint); err != nil {
		return nil, err
	}
	// a work folder may be another model's
	from := []string{repack.Name}
	if !a.o.Dense {
		from = append(from, "capture")
	}
	if a.look != nil {
		from = append(from, regress.Name)
	}
	for _, s := range from {
		if err := a.e.MadeFrom(ctx, s, a.o.Checkpoint.Files()...); err != nil {
			return nil, err
		}
	}
	w, err := bundle.NewWriter(a.o.Out)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	m := &bundle.Manifest{
		Format: bundle.Format{Reader: bundle.ReaderVersion, Writer: bundle.WriterVersion},
		Tool:   a.o.Tool, Model: *a.o.Checkpoint.Config, Params: map[string]string{},
	}
	layers, err := repack.ReadLayers(a.stagePath(repack.Name, ""))
	if err != nil {
		return nil, err
	}
	m.Rows, m.LayerCRC = layers.Rows, layers.CRC
	links, err := a.links(ctx, dir, m)
	if err != nil {
		return nil, err
	}
	if err := a.link(ctx, w, links, p); err != nil {
		return nil, err
	}
	if err := a.small(w); err != nil {
		return nil, err
	}
	if err := a.provenance(ctx, m); err != nil {
		return nil, err
	}
	if err := w.Publish(ctx, m); err != nil {
		return nil, err
	}
	sum, err := stage.FileHash(filepath.Join(a.o.Out, bundle.MemberManifest))
	if err != nil {
		return nil, err
	}
	err = format.WriteFileAtomic(filepath.Join(dir, publishedFile), func(f io.Writer) error {
		_, err := fmt.Fprintf(f, "{\"manifest_sha256\": %q}\n", sum)
		return err
	})
	return a.values(m, sum), err
}

func (a *assembler) stagePath(stageName, file string) string {
	return filepath.Join(a.e.Work, stageName, file)
}

// linked is a member that is a file of the work folder.
type linked struct{ name, path, sum string }

// links lists the big members and checks that they are what their stages recorded.
func (a *assembler) links(ctx context.Context, dir string, m *bundle.Manifest) ([]linked, error) {
	var out []linked
	add := func(name, stageName, file string, recorded map[string]string) error {
		path := a.stagePath(stageName, file)
		sum, err := a.e.FileHash(ctx, path)
		if err != nil {
			return err
		}
		if sum != recorded[file] {
			return format.Hint(format.Corruptf("%s: not what stage %s made", path, stageName), "run npprep "+stageName+" again")
		}
		out = append(out, linked{name, path, sum})
		return nil
	}
	names := []string{bundle.MemberRows, bundle.MemberResident}
	if !m.Rows.Trailer {
		names = append(names, bundle.MemberRowsCRC)
	}
	for _, n := range names {
		if err := add(n, repack.Name, n, a.rows); err != nil {
			return nil, err
		}
	}
	if a.o.Dense {
		return out, nil
	}
	if a.pred != nil {
		if err := add(bundle.MemberPredictor, "train", train.File, a.pred); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, bundle.MemberCentroids)
	r, err := cluster.Prune(ctx, a.e.Work, a.o.Checkpoint.Config, a.kMax, path)
	if err != nil {
		return nil, err
	}
	out = append(out, linked{bundle.MemberCentroids, path, ""})
	for _, x := range []struct {
		wanted              bool
		member, stage, file string
		outputs             map[string]string
	}{
		{a.look != nil, bundle.MemberLookahead, regress.Name, regress.File, a.look},
		{a.wants(bundle.SelectorPaperPlus), bundle.MemberPaperRows, vocab.Name, vocab.PaperFile, a.vocab},
		{a.wants(bundle.SelectorCentroid), bundle.MemberJointRows, vocab.Name, vocab.JointFile, a.vocab},
		{a.wants(bundle.SelectorCentroid), bundle.MemberJoint, train.JointName, train.JointFile, a.joint},
		{a.tune[bundle.MemberMeans] != "", bundle.MemberMeans, TuneStage, bundle.MemberMeans, a.tune},
	} {
		if !x.wanted {
			continue
		}
		if x.outputs[x.file] == "" {
			return nil, format.Hint(format.Inputf("stage %s has not made %s", x.stage, x.file), "run npprep "+x.stage+" again with the same --selectors")
		}
		if err := add(x.member, x.stage, x.file, x.outputs); err != nil {
			return nil, err
		}
	}
	selectors := a.o.Selectors
	if selectors == nil {
		selectors = slices.DeleteFunc(slices.Clone(DefaultSelectors), func(s string) bool { return s == bundle.SelectorLookahead && a.look == nil })
	}
	m.Sparse = &bundle.Sparse{
		KMax: a.kMax, Sparsity: 1 - float64(a.kMax)/float64(m.Rows.Neurons), Centroids: r.Centroids,
		Selectors:    selectors,
		TokenDensity: r.TokenDensity, CentroidDensity: r.CentroidDensity, MeanIntersection: r.MeanIntersection,
		DefaultDense: regress.DefaultDense(m.Rows.Layers),
	}
	if a.pred != nil {
		m.Sparse.PredictorDim = int(a.number("train", "dim"))
	}
	if a.vocab != nil {
		m.Sparse.DefaultDense = int(a.number(vocab.Name, "dense"))
	}
	if a.look != nil {
		m.Sparse.DefaultDense = int(a.number(regress.Name, "dense"))
		m.Sparse.LookaheadLayers, m.Sparse.LookaheadRank = a.number(regress.Name, "lookahead"), int(a.number(regress.Name, "rank"))
	}
	if a.tune != nil {
		b, err := format.ReadFile(a.stagePath(TuneStage, TunedFile), bundle.MaxManifest)
		if err != nil {
			return nil, err
		}
		var t Tuned
		if err := json.Unmarshal(b, &t); err != nil {
			return nil, format.Corruptf("%s: %w", a.stagePath(TuneStage, TunedFile), err)
		}
		m.Sparse.Quality = t.Quality
	}
	return out, nil
}

// number is a value of a stage's report.
func (a *assembler) number(stage, key string) float64 {
	v, _ := a.e.Values(stage)[key].(float64)
	return v
}

// link checks the room and makes the big members.
func (a *assembler) link(ctx context.Context, w *bundle.Writer, links []linked, p *stage.Progress) error {
	var paths []string
	var total int64
	for _, l := range links {
		paths = append(paths, l.path)
		if st, err := os.Stat(l.path); err == nil {
			total += st.Size()
		}
	}
	var small int64 = bundle.MaxManifest / 16 // manifest; far more than it takes
	for _, f := range a.smallFiles() {
		if st, err := os.Stat(f); err == nil {
			small += st.Size()
		}
	}
	if err := w.Room(small, paths...); err != nil {
		return err
	}
	p.Start("members", total, "B")
	defer p.Done()
	for _, l := range links {
		if err := w.Link(ctx, l.name, l.path, l.sum, func(n int) { p.Add(int64(n)) }); err != nil {
			return err
		}
	}
	return nil
}

// smallFiles are the source's files that a bundle copies.
func (a *assembler) smallFiles() []string {
	var out []string
	for _, n := range []string{bundle.MemberConfig, bundle.MemberTokenizer, bundle.MemberTokenizerConfig, bundle.MemberGenerationConfig} {
		out = append(out, filepath.Join(a.o.Checkpoint.Dir, n))
	}
	return out
}

// small puts the copies of the source's small files, and the chat template as a file of its own wherever the
// source kept it.
func (a *assembler) small(w *bundle.Writer) error {
	for _, path := range a.smallFiles() {
		data, err := format.ReadFile(path, bundle.MaxTokenizer)
		if errors.Is(err, fs.ErrNotExist) && filepath.Base(path) != bundle.MemberConfig && filepath.Base(path) != bundle.MemberTokenizer {
			continue
		}
		if err != nil {
			return err
		}
		if err := w.Put(filepath.Base(path), data); err != nil {
			return err
		}
	}
	t, err := a.o.Checkpoint.ChatTemplate()
	if err != nil {
		return err
	}
	if t == "" {
		return nil
	}
	return w.Put(bundle.MemberTemplate, []byte(t))
}

// provenance notes what the bundle was made from. No times and no paths: the same inputs give the same bytes.
func (a *assembler) provenance(ctx context.Context, m *bundle.Manifest) error {
	for _, f := range a.o.Checkpoint.Files() {
		st, err := os.Stat(f)
		if err != nil {
			return format.IOf("%w", err)
		}
		h, err := a.e.FileHash(ctx, f)
		if err != nil {
			return err
		}
		m.Sources = append(m.Sources, bundle.Source{Name: filepath.Base(f), Size: st.Size(), SHA256: h})
	}
	m.Params["dense"] = strconv.FormatBool(a.o.Dense)
	if !a.o.Dense {
		m.Params["k_max"] = strconv.Itoa(a.kMax)
		m.Params["seed"] = strconv.FormatUint(a.e.Seed, 10)
		calib := a.e.Values("capture")
		for _, k := range []string{"tokens", "density", "text_sha256"} {
			if v, ok := calib[k]; ok {
				m.Params["calibration_"+k] = fmt.Sprint(v)
			}
		}
	}
	return nil
}

func (a *assembler) values(m *bundle.Manifest, sum string) map[string]any {
	var total int64
	for _, x := range m.Members {
		total += x.Size
	}
	v := map[string]any{"out": a.o.Out, "bytes": total, "members": len(m.Members), "manifest_sha256": sum}
	if s := m.Sparse; s != nil {
		v["k_max"], v["sparsity"], v["centroids"], v["mean_intersection"] = s.KMax, s.Sparsity, s.Centroids, s.MeanIntersection
	}
	return v
}
