package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"neuroprefetcher/format"
	"neuroprefetcher/format/checkpoint"
)

// The members a bundle may have. Copies of the source's small files keep their names.
const (
	MemberManifest  = "manifest.json"
	MemberConfig    = "config.json"
	MemberTokenizer = "tokenizer.json"
	MemberTemplate  = "chat_template.jinja"
	MemberResident  = "resident.safetensors"
	MemberCentroids = "centroids"
	MemberPredictor = "predictor.safetensors"
	MemberLookahead = "lookahead.safetensors"
	MemberPaperRows = "paper-rows.safetensors"
	MemberJoint     = "joint.safetensors"
	MemberJointRows = "joint-rows.safetensors"
	MemberMeans     = "means.safetensors"
	MemberRows      = "rows.np"
	MemberRowsCRC   = "rows.crc"

	MemberTokenizerConfig  = "tokenizer_config.json"
	MemberGenerationConfig = "generation_config.json"
)

// members says which members this version knows, which every bundle needs, and which are marked optional when written.
var members = map[string]struct{ required, optional bool }{
	MemberConfig: {required: true}, MemberTokenizer: {required: true}, MemberTemplate: {}, MemberTokenizerConfig: {}, MemberGenerationConfig: {},
	MemberResident: {required: true}, MemberCentroids: {}, MemberPredictor: {}, MemberLookahead: {optional: true},
	MemberPaperRows: {optional: true}, MemberJoint: {optional: true}, MemberJointRows: {optional: true}, MemberMeans: {optional: true}, MemberRows: {required: true}, MemberRowsCRC: {},
}

// The selectors this version knows how to set up from a bundle.
const (
	SelectorLookahead = "lookahead"
	SelectorPaper     = "paper"
	SelectorPaperPlus = "paper+"
	SelectorCentroid  = "centroid"
	SelectorStatic    = "static"
)

// SelectorMembers are the members that a selector works with; nil for one that this version does not know.
func SelectorMembers(selector string) []string {
	switch selector {
	case SelectorLookahead:
		return []string{MemberLookahead, MemberCentroids}
	case SelectorPaper:
		return []string{MemberPredictor, MemberCentroids}
	case SelectorPaperPlus:
		return []string{MemberPredictor, MemberPaperRows, MemberCentroids}
	case SelectorCentroid:
		return []string{MemberJoint, MemberJointRows, MemberCentroids}
	case SelectorStatic:
		return []string{MemberCentroids}
	}
	return nil
}

// Format is the manifest's version block. Required names features a reader must understand to run the bundle;
// one that it does not know is refused by name.
type Format struct {
	Reader   Version  `json:"reader"`
	Writer   Version  `json:"writer"`
	Required []string `json:"required,omitempty"`
}

// Sparse is what calibration found. Nil in the manifest of a dense bundle.
type Sparse struct {
	KMax             int      `json:"k_max"`                      // neurons a sparse layer computes
	Sparsity         float64  `json:"sparsity"`                   // 1 − KMax/M
	Centroids        int      `json:"centroids"`                  // K, centroids per layer and projection at most
	Selectors        []string `json:"selectors"`                  // "lookahead", "paper", "paper+", "centroid", "static"; the first is the default where nothing was measured
	TokenDensity     float64  `json:"token_density"`              // share of a token's neurons above threshold, wanted
	CentroidDensity  float64  `json:"centroid_density"`           // share of neurons in a pruned centroid
	MeanIntersection float64  `json:"mean_intersection"`          // mean size of gate ∩ up over calibration tokens, in neurons
	DefaultDense     int      `json:"default_dense"`              // dense prefix d when nothing was calibrated
	PredictorDim     int      `json:"predictor_dim"`              // width T of the predictor; 0 without one
	LookaheadLayers  float64  `json:"lookahead_layers,omitempty"` // how many layers ahead of its input a layer's neurons are named
	LookaheadRank    int      `json:"lookahead_rank,omitempty"`   // rank of the factors behind the default dense prefix

	Quality []Quality `json:"quality,omitempty"` // measured when the bundle was made; none: it was not
}

// Quality is what a selector came to with K_max neurons behind the default dense prefix, on calibration text.
type Quality struct {
	Selector      string  `json:"selector"`
	ReadCap       int     `json:"rows_per_layer_cap,omitempty"` // most rows read per sparse layer and token; 0 is no limit
	Tokens        int     `json:"tokens"`                       // that were scored
	Seen          bool    `json:"seen,omitempty"`               // the text is part of what the selectors were made from
	Ratio         float64 `json:"ratio"`                        // perplexity ÷ that of the exact model
	StdErr        float64 `json:"ratio_standard_error"`
	Agreement     float64 `json:"agreement"` // tokens whose likeliest continuation is the exact model's
	Drift         float64 `json:"drift"`     // root mean square change of the tokens' log-probabilities
	Recall        float64 `json:"recall"`    // share of importance that is computed
	Reuse         float64 `json:"reuse"`
	BytesPerToken float64 `json:"bytes_per_token"`
}

// Best is the selector whose log-probabilities are nearest to the exact model's, with or without a limit to what is read; the first one
// where nothing was measured. A fixed set reads next to nothing, with a limit or without.
func (s *Sparse) Best(limited bool) string {
	best, drift := "", math.Inf(1)
	for _, q := range s.Quality {
		if ((q.ReadCap > 0) == limited || q.Selector == SelectorStatic) && q.Drift < drift {
			best, drift = q.Selector, q.Drift
		}
	}
	if best == "" && len(s.Selectors) > 0 {
		best = s.Selectors[0]
	}
	return best
}

// Member is one file of the bundle.
type Member struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`
	SHA256   string `json:"sha256"`
	Optional bool   `json:"optional,omitempty"` // readers that do not know the name may ignore it
}

// Source is one file that the bundle was made from.
type Source struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Manifest is manifest.json.
type Manifest struct {
	Format   Format            `json:"format"`
	Tool     string            `json:"tool"` // program and version that wrote the bundle
	Model    checkpoint.Config `json:"model"`
	Rows     Geometry          `json:"rows"`
	Sparse   *Sparse           `json:"sparse,omitempty"`
	Members  []Member          `json:"members"`
	LayerCRC []uint32          `json:"layer_crc32c"` // of each layer's record checksums, see SPEC.md
	Sources  []Source          `json:"sources,omitempty"`
	Params   map[string]string `json:"params,omitempty"`
}

// Member finds a member by name.
func (m *Manifest) Member(name string) (Member, bool) {
	for _, x := range m.Members {
		if x.Name == name {
			return x, true
		}
	}
	return Member{}, false
}

// Encode gives the bytes of manifest.json: indented, keys in the order of the struct, so the same bundle has
// the same bytes.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.check(MemberManifest); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// ParseManifest reads manifest.json. Keys it does not know are ignored: whatever an old reader must not
// ignore raises the reader version or is named in format.required.
func ParseManifest(name string, data []byte) (*Manifest, error) {
	if len(data) > MaxManifest {
		return nil, format.Corruptf("%s: %d bytes, more than the limit of %d", name, len(data), MaxManifest)
	}
	// Versions first: the rest of a newer manifest may have another shape.
	var v struct {
		Format *Format `json:"format"`
	}
	if err := checkJSON(data); err != nil {
		return nil, format.Corruptf("%s: %v", name, err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, format.Corruptf("%s: %v", name, err)
	}
	if v.Format == nil {
		return nil, format.Corruptf("%s: key %q is missing: not a bundle's manifest", name, "format")
	}
	if err := checkVersions(name, v.Format.Reader, v.Format.Writer); err != nil {
		return nil, err
	}
	for _, f := range v.Format.Required {
		return nil, format.Hint(format.Inputf("%s: the bundle requires the feature %.60q, which this program does not know", name, f), "use a newer program")
	}
	m := new(Manifest)
	if err := json.Unmarshal(data, m); err != nil {
		return nil, format.Corruptf("%s: %v", name, err)
	}
	return m, m.check(name)
}

// check holds the manifest against limits and against itself.
func (m *Manifest) check(name string) error {
	bad := func(f string, a ...any) error { return format.Corruptf("%s: "+f, append([]any{name}, a...)...) }
	if err := checkVersions(name, m.Format.Reader, m.Format.Writer); err != nil {
		return err
	}
	if err := m.Rows.Check(name); err != nil {
		return err
	}
	if err := m.Model.Validate(); err != nil {
		return bad("model: %v", err)
	}
	g := m.Rows
	if g.Hidden != m.Model.Hidden || g.Neurons != m.Model.Intermediate || g.Layers != m.Model.Layers {
		return bad("rows hold %d layers of %d neurons of width %d, the model has %d of %d of %d",
			g.Layers, g.Neurons, g.Hidden, m.Model.Layers, m.Model.Intermediate, m.Model.Hidden)
	}
	if len(m.LayerCRC) != g.Layers {
		return bad("layer_crc32c has %d entries for %d layers", len(m.LayerCRC), g.Layers)
	}
	if err := m.checkMembers(bad); err != nil {
		return err
	}
	return m.checkSparse(bad)
}

func (m *Manifest) checkMembers(bad func(string, ...any) error) error {
	if len(m.Members) > MaxMembers {
		return bad("%d members, more than the limit of %d", len(m.Members), MaxMembers)
	}
	seen := map[string]bool{}
	for _, x := range m.Members {
		switch _, known := members[x.Name]; {
		case !safeName(x.Name):
			return bad("member %.60q: not a plain file name", x.Name)
		case seen[x.Name]:
			return bad("member %q is listed twice", x.Name)
		case !known && !x.Optional:
			return format.Hint(bad("member %.60q is not known to this program and not marked optional", x.Name), "use a newer program")
		case x.Size < 0 || x.Size > maxMemberBytes:
			return bad("member %q: size %d", x.Name, x.Size)
		case !isHex64(x.SHA256):
			return bad("member %q: sha256 is not 64 lower-case hexadecimal digits", x.Name)
		}
		seen[x.Name] = true
	}
	for n, x := range members {
		if x.required && !seen[n] {
			return bad("member %q is missing", n)
		}
	}
	rows, _ := m.Member(MemberRows)
	if want := m.Rows.FileSize(); rows.Size != want {
		return bad("member %q: %d bytes, the geometry needs %d", MemberRows, rows.Size, want)
	}
	side, has := m.Member(MemberRowsCRC)
	if has == m.Rows.Trailer {
		return bad("member %q must be there exactly when records carry no trailer", MemberRowsCRC)
	}
	if want := int64(m.Rows.Layers) * int64(m.Rows.Neurons) * 4; has && side.Size != want {
		return bad("member %q: %d bytes, want %d", MemberRowsCRC, side.Size, want)
	}
	return nil
}

func (m *Manifest) checkSparse(bad func(string, ...any) error) error {
	s := m.Sparse
	if s == nil {
		return nil
	}
	unit := func(x float64) bool { return x >= 0 && x <= 1 } // false for NaN
	switch {
	case s.KMax < 1 || s.KMax > m.Rows.Neurons:
		return bad("sparse: k_max %d is not in 1..%d", s.KMax, m.Rows.Neurons)
	case s.Centroids < 0 || s.Centroids > 1<<16:
		return bad("sparse: %d centroids", s.Centroids)
	case s.DefaultDense < 1 || s.DefaultDense > m.Rows.Layers:
		return bad("sparse: default_dense %d is not in 1..%d", s.DefaultDense, m.Rows.Layers)
	case s.PredictorDim < 0 || s.PredictorDim > 1<<16:
		return bad("sparse: predictor_dim %d", s.PredictorDim)
	case !(s.LookaheadLayers >= 0 && s.LookaheadLayers <= float64(m.Rows.Layers)) || s.LookaheadRank < 0 || s.LookaheadRank > m.Rows.Hidden:
		return bad("sparse: lookahead_layers %v, lookahead_rank %d", s.LookaheadLayers, s.LookaheadRank)
	case !unit(s.Sparsity) || !unit(s.TokenDensity) || !unit(s.CentroidDensity) || !(s.MeanIntersection >= 0 && s.MeanIntersection <= float64(m.Rows.Neurons)):
		return bad("sparse: a density is outside 0..1")
	}
	for _, q := range s.Quality {
		positive := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
		if !slices.Contains(s.Selectors, q.Selector) || q.ReadCap < 0 || q.Tokens < 1 || !(q.Ratio > 0) || !positive(q.Ratio) || !positive(q.StdErr) || !positive(q.Drift) ||
			!unit(q.Agreement) || !unit(q.Recall) || !unit(q.Reuse) || !positive(q.BytesPerToken) {
			return bad("sparse: quality of %.40q is not one of a selector of the bundle", q.Selector)
		}
	}
	for _, sel := range s.Selectors {
		for _, member := range SelectorMembers(sel) {
			if _, ok := m.Member(member); !ok {
				return bad("sparse: selector %q needs the member %q", sel, member)
			}
		}
	}
	return nil
}

// safeName accepts what cannot leave the directory.
func safeName(n string) bool {
	return n != "" && len(n) <= 255 && n == filepath.Base(n) && n != "." && n != ".." && n != MemberManifest && !strings.ContainsAny(n, "/\\\x00\n")
}

func isHex64(s string) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// checkJSON refuses what encoding/json lets pass: see format.CheckJSON, and keys that differ only in case, which
// encoding/json takes for one.
func checkJSON(data []byte) error {
	if err := format.CheckJSON(data); err != nil {
		return err
	}
	return foldedKeys(json.NewDecoder(bytes.NewReader(data)))
}

// foldedKeys walks one value of known good JSON.
func foldedKeys(d *json.Decoder) error {
	t, err := d.Token()
	open, ok := t.(json.Delim)
	if err != nil || !ok {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			k, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := k.(string)
			if key := strings.ToLower(name); seen[key] {
				return fmt.Errorf("key %.60q is given twice in different case", key)
			} else {
				seen[key] = true
			}
		}
		if err := foldedKeys(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
