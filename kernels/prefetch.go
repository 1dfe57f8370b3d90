package kernels

// Weights come from memory, not from a cache: a token reads each of them once.
// The kernels that take several rows at a time therefore prefetch, one line of
// every row per step of the loop. The processor's own prefetchers follow long
// streams; they do not see that short rows end at once and others begin, and
// they know nothing of a neuron record's address. Eight rows in work and the
// same place of a later eight asked for is what reads scattered rows fastest;
// for long rows, four at a time and a distance within the row do as well.

const (
	// prefetchElems is how far ahead in a row the loop over four rows asks, in
	// elements. Of 128 to 1024, 192 and 256 read fastest on AMD Zen 3.
	prefetchElems = 256
	// aheadElems is the least that should lie between the rows in work and
	// those asked for, in elements of all of them.
	aheadElems = 2048
	// longRow is from how many elements on four rows at a time read as fast as
	// eight, or faster, where gate and up lie next to each other.
	longRow = 1536
)

// split is the element of an n element row up to which the loop over four rows
// prefetches in the row itself. A multiple of what a step of the loop takes, for
// all levels.
func split(n int) int { return max(0, n-prefetchElems) &^ 31 }

// groupsAhead is how many groups of four rows later that group lies whose n
// element rows are prefetched after the rows in work.
func groupsAhead(n int) int { return max(1, aheadElems/4/max(n, 1)) }

// rowsAhead is how many rows of n elements later those lie that the attention
// kernels prefetch.
func rowsAhead(n int) int { return max(8, aheadElems/max(n, 1)&^7) }
