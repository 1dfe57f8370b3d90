package eval

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"neuroprefetcher/format"
)

// Item is one HellaSwag question, its text as lm-evaluation-harness makes it.
type Item struct {
	Ind     int
	Query   string   // activity label, colon, context
	Endings []string // of which one continues the query
	Label   int      // the right one
}

const (
	maxItemsBytes = 1 << 28 // of a file of items
	maxItemBytes  = 1 << 20 // of one item
	maxEndings    = 16
)

var bracketed = regexp.MustCompile(`\[.*?\]`)

// Preprocess takes the marks of WikiHow out of a context or an ending, by the rules of lm-evaluation-harness: white space
// around the text goes, " [title]" becomes ". ", what else stands in square brackets goes, and two spaces become one.
func Preprocess(text string) string {
	text = strings.ReplaceAll(strings.TrimFunc(text, unicode.IsSpace), " [title]", ". ")
	return strings.ReplaceAll(bracketed.ReplaceAllString(text, ""), "  ", " ")
}

// capitalize is Python's: the first character upper case, all others lower case.
func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToTitle(s[:n]) + strings.ToLower(s[n:])
}

// LoadHellaSwag reads items, one JSON object a line: the published files (activity_label, ctx_a, ctx_b, endings, label,
// ind), or files whose ctx has the activity label in front already (ctx, endings, label, ind).
func LoadHellaSwag(path string) ([]Item, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, format.Inputf("%w", err)
	}
	if info.Size() > maxItemsBytes {
		return nil, format.Inputf("%s: %d bytes, at most %d are read", path, info.Size(), maxItemsBytes)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, format.Inputf("%w", err)
	}
	defer f.Close()
	var items []Item
	s := bufio.NewScanner(f)
	s.Buffer(nil, maxItemBytes)
	line := 1
	for ; s.Scan(); line++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		item, err := parseItem(s.Bytes())
		if err != nil {
			return nil, format.Inputf("%s: line %d: %w", path, line, err)
		}
		items = append(items, item)
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, format.Inputf("%s: line %d: longer than %d bytes", path, line, maxItemBytes)
	} else if err != nil {
		return nil, format.Inputf("%s: %w", path, err)
	}
	if len(items) == 0 {
		return nil, format.Inputf("%s: has no items", path)
	}
	return items, nil
}

func parseItem(line []byte) (Item, error) {
	var raw struct {
		Ind      int             `json:"ind"`
		Activity *string         `json:"activity_label"`
		CtxA     string          `json:"ctx_a"`
		CtxB     string          `json:"ctx_b"`
		Ctx      string          `json:"ctx"`
		Endings  []string        `json:"endings"`
		Label    json.RawMessage `json:"label"` // a number, or a number as text
	}
	if !utf8.Valid(line) {
		return Item{}, errors.New("not UTF-8")
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) { // its text spells out the struct
			where := "an item"
			if wrong.Field != "" {
				where = wrong.Field
			}
			return Item{}, fmt.Errorf("%s is a JSON %s, which it cannot be", where, wrong.Value)
		}
		return Item{}, err
	}
	label, err := strconv.Atoi(strings.Trim(string(raw.Label), `"`))
	switch {
	case len(raw.Endings) < 2 || len(raw.Endings) > maxEndings:
		return Item{}, fmt.Errorf("%d endings, want 2 to %d", len(raw.Endings), maxEndings)
	case err != nil || label < 0 || label >= len(raw.Endings):
		return Item{}, fmt.Errorf("label %s: want the number of the right ending, from 0", raw.Label)
	}
	query := raw.Ctx
	if raw.Activity != nil {
		query = *raw.Activity + ": " + raw.CtxA + " " + capitalize(raw.CtxB)
	}
	item := Item{Ind: raw.Ind, Query: Preprocess(query), Label: label}
	if item.Query == "" {
		return item, errors.New("the context is empty")
	}
	for _, e := range raw.Endings {
		item.Endings = append(item.Endings, Preprocess(e))
	}
	if !slices.ContainsFunc(item.Endings, func(e string) bool { return e != "" }) {
		return item, errors.New("all endings are empty")
	}
	return item, nil
}

// Prompt is what an item's endings continue: the shots with their right endings, a blank line behind each, and the
// item's query.
func Prompt(shots []Item, item Item) string {
	var b strings.Builder
	for _, s := range shots {
		b.WriteString(s.Query + " " + s.Endings[s.Label] + "\n\n")
	}
	return b.String() + item.Query
}

// A Choice is one ending behind its prompt, as tokens.
type Choice struct {
	IDs  []int32
	From int // the ending's tokens are IDs[From:]
}

// Choices encodes every ending of an item: its tokens are those of prompt, space and ending beyond the prompt's own.
// What is longer than limit tokens loses its beginning; 0 is no limit.
func Choices(encode func(string) []int32, shots []Item, item Item, limit int) []Choice {
	prompt := Prompt(shots, item)
	bare := strings.TrimRightFunc(prompt, unicode.IsSpace) // spaces go to the ending
	from := len(encode(bare))
	var cs []Choice
	for _, e := range item.Endings {
		c := Choice{IDs: encode(bare + prompt[len(bare):] + " " + e), From: from}
		if cut := len(c.IDs) - limit; limit > 0 && cut > 0 {
			c.IDs, c.From = c.IDs[cut:], max(1, c.From-cut)
		}
		cs = append(cs, c)
	}
	return cs
}

// ItemScore is how a model answers one item.
type ItemScore struct {
	Ind   int       `json:"ind"`
	Label int       `json:"label"`
	Sums  []float64 `json:"sums"` // log-probability of every ending
	Raw   int       `json:"pick"` // the ending of the largest sum
	Norm  int       `json:"pick_norm"`
}

// HellaSwag is the result over all items. acc takes the ending of the largest sum of log-probabilities, acc_norm that of
// the largest sum per character; of equal ones the first.
type HellaSwag struct {
	Items         int         `json:"items"`
	Shots         int         `json:"shots"`
	Acc           float64     `json:"acc"`
	AccStdErr     float64     `json:"acc_standard_error"`
	AccNorm       float64     `json:"acc_norm"`
	AccNormStdErr float64     `json:"acc_norm_standard_error"`
	Rows          []ItemScore `json:"rows"`
}

// String describes the protocol and the result in one line.
func (h *HellaSwag) String() string {
	return fmt.Sprintf("HellaSwag acc %.4f ± %.4f, acc_norm %.4f ± %.4f (%d items, %d shots, sum of log-probabilities, normalised by characters)",
		h.Acc, h.AccStdErr, h.AccNorm, h.AccNormStdErr, h.Items, h.Shots)
}

// Scorer returns the log-probabilities of ids[from:], each given all tokens before it.
type Scorer func(ctx context.Context, ids []int32, from int) ([]float64, error)

// RunHellaSwag scores every item's endings behind the shots. Consecutive calls of score share long beginnings: a scorer
// may keep what it computed. progress, if any, is called after each item.
func RunHellaSwag(ctx context.Context, encode func(string) []int32, items, shots []Item, limit int, score Scorer, progress func(done, total int)) (*HellaSwag, error) {
	var rows []ItemScore
	for i, item := range items {
		var sums []float64
		for _, c := range Choices(encode, shots, item, limit) {
			sum := 0.0
			if c.From < len(c.IDs) { // else the ending has no token
				lp, err := score(ctx, c.IDs, c.From)
				if err != nil {
					return nil, fmt.Errorf("item %d: %w", item.Ind, err)
				}
				for _, v := range lp {
					sum += v
				}
			}
			sums = append(sums, sum)
		}
		rows = append(rows, Pick(item, sums))
		if progress != nil {
			progress(i+1, len(items))
		}
	}
	return Summarise(rows, len(shots)), nil
}

// Pick answers an item by the sums of its endings.
func Pick(item Item, sums []float64) ItemScore {
	s := ItemScore{Ind: item.Ind, Label: item.Label, Sums: sums}
	best := math.Inf(-1)
	for i, v := range sums {
		if v > sums[s.Raw] {
			s.Raw = i
		}
		// An ending that is empty after preprocessing is no answer.
		if n := utf8.RuneCountInString(item.Endings[i]); n > 0 && v/float64(n) > best {
			best, s.Norm = v/float64(n), i
		}
	}
	return s
}

// Summarise makes the result of answers.
func Summarise(rows []ItemScore, shots int) *HellaSwag {
	h := &HellaSwag{Items: len(rows), Shots: shots, Rows: rows}
	raw, norm := 0, 0
	for _, r := range rows {
		if r.Raw == r.Label {
			raw++
		}
		if r.Norm == r.Label {
			norm++
		}
	}
	h.Acc, h.AccStdErr = share(raw, len(rows))
	h.AccNorm, h.AccNormStdErr = share(norm, len(rows))
	return h
}

// share is k of n and its standard error as of a sample, as lm-evaluation-harness has it.
func share(k, n int) (p, stderr float64) {
	if n == 0 {
		return 0, 0
	}
	p = float64(k) / float64(n)
	if n > 1 {
		stderr = math.Sqrt(p * (1 - p) / float64(n-1))
	}
	return p, stderr
}

// Agreement is the share of items that two runs over the same items answer alike, by sum and by sum per character, with
// standard errors.
func Agreement(a, b *HellaSwag) (raw, rawStdErr, norm, normStdErr float64, err error) {
	if len(a.Rows) != len(b.Rows) {
		return 0, 0, 0, 0, fmt.Errorf("%d and %d items cannot be compared", len(a.Rows), len(b.Rows))
	}
	nr, nn := 0, 0
	for i := range a.Rows {
		if a.Rows[i].Ind != b.Rows[i].Ind {
			return 0, 0, 0, 0, fmt.Errorf("items %d and %d cannot be compared", a.Rows[i].Ind, b.Rows[i].Ind)
		}
		if a.Rows[i].Raw == b.Rows[i].Raw {
			nr++
		}
		if a.Rows[i].Norm == b.Rows[i].Norm {
			nn++
		}
	}
	raw, rawStdErr = share(nr, len(a.Rows))
	norm, normStdErr = share(nn, len(a.Rows))
	return raw, rawStdErr, norm, normStdErr, nil
}
