package predictor

import (
	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
)

// Open reads a selector of a bundle for layers ≥ max(1, firstLayer).
func Open(b *bundle.Bundle, name string, firstLayer int) (Selector, error) {
	cfg, centroids := &b.Manifest.Model, b.Path(bundle.MemberCentroids)
	switch name {
	case bundle.SelectorLookahead:
		return LoadLookahead(b.Path(bundle.MemberLookahead), centroids, cfg, firstLayer)
	case bundle.SelectorPaper:
		c, err := LoadCentroids(centroids, cfg, firstLayer)
		if err != nil {
			return nil, err
		}
		p, err := LoadPredictor(b.Path(bundle.MemberPredictor), cfg, firstLayer)
		if err != nil {
			return nil, err
		}
		return NewPaper(p, c)
	case bundle.SelectorPaperPlus:
		return LoadPaperPlus(b.Path(bundle.MemberPredictor), b.Path(bundle.MemberPaperRows), centroids, cfg, firstLayer)
	case bundle.SelectorCentroid:
		return LoadCentroid(b.Path(bundle.MemberJoint), b.Path(bundle.MemberJointRows), centroids, cfg, firstLayer)
	case bundle.SelectorStatic:
		return LoadStatic(centroids, cfg, firstLayer)
	}
	return nil, format.Hint(format.Inputf("%s: selector %s is not known to this version", b.Dir, name), "name another with --selector")
}
