// Package predictor names neurons: the paper's network and centroid tables, and the selectors built on them.
package predictor
