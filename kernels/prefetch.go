package kernels

// Weights come from memory, not from a cache: a token reads each of them once.
// The kernels that take four rows at a time therefore prefetch, one line of
// every row per step of the loop: ahead in the row itself, and where less than
// that is left, the rows of a later group. The processor's own prefetchers
// follow long streams; they do not see that four short rows end at once and
// four others begin, and they know nothing of a neuron record's address.

const (
	// prefetchElems is how far ahead in a row the loop asks, in elements. Four
	// rows of it are an eighth of the smallest first-level cache.
	prefetchElems = 512
	// aheadElems is the least that should lie between the rows in work and
	// those asked for, in elements of one row.
	aheadElems = 512
)

// split is the element of an n element row up to which the loop prefetches in
// the row itself. A multiple of what a step of the loop takes, for all levels.
func split(n int) int { return max(0, n-prefetchElems) &^ 31 }

// groupsAhead is how many groups of four rows later that group lies whose n
// element rows are prefetched after the rows in work.
func groupsAhead(n int) int { return max(1, aheadElems/max(n, 1)) }
