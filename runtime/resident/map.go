package resident

import (
	"fmt"
	"math/bits"
)

// Map is the slot map of one sparse layer. Not safe for concurrent use.
type Map struct {
	slotOf   []int32  // (M) slot of a neuron, −1 when not resident
	neuronOf []int32  // (K_max) neuron in a slot, −1 when free
	resident []uint64 // (M bits) the same as slotOf ≥ 0, for ascending walks
	used     int
}

// NewMap makes an empty map of that many neurons and slots.
func NewMap(neurons, slots int) *Map {
	m := &Map{
		slotOf:   make([]int32, neurons),
		neuronOf: make([]int32, slots),
		resident: make([]uint64, (neurons+63)/64),
	}
	m.Clear()
	return m
}

// Clear empties the map.
func (m *Map) Clear() {
	for i := range m.slotOf {
		m.slotOf[i] = -1
	}
	for i := range m.neuronOf {
		m.neuronOf[i] = -1
	}
	clear(m.resident)
	m.used = 0
}

// Slot returns the slot of neuron n, −1 when it is not resident.
func (m *Map) Slot(n int32) int32 { return m.slotOf[n] }

// Neuron returns the neuron in a slot, −1 when the slot is free.
func (m *Map) Neuron(slot int32) int32 { return m.neuronOf[slot] }

// Len returns how many neurons are resident.
func (m *Map) Len() int { return m.used }

// Neurons and Slots return the sizes given to NewMap.
func (m *Map) Neurons() int { return len(m.slotOf) }
func (m *Map) Slots() int   { return len(m.neuronOf) }

// Drop removes neuron n, if resident: for a slot whose bytes were found damaged after placing.
func (m *Map) Drop(n int32) {
	if s := m.slotOf[n]; s >= 0 {
		m.evict(n, s)
	}
}

func (m *Map) evict(n, slot int32) {
	m.slotOf[n], m.neuronOf[slot] = -1, -1
	m.resident[n>>6] &^= 1 << (n & 63)
	m.used--
}

func (m *Map) put(n, slot int32) {
	m.slotOf[n], m.neuronOf[slot] = slot, n
	m.resident[n>>6] |= 1 << (n & 63)
	m.used++
}

// Delta is the difference between a map and an active set. Its slices are reused by the next Plan.
type Delta struct {
	In     []int32 // ids to read, ascending
	Out    []int32 // ids that leave, ascending
	Slots  []int32 // slot that In[i] will take: free ones first, then those of Out in order
	Reused int     // ids of the active set that are resident already

	free int // how many of In take a free slot; In[free+j] takes the slot of Out[j]
}

// Plan fills d with what it takes to go from the map to the active set (ascending ids, at most as many as there are slots).
// The map is not changed.
func (m *Map) Plan(active []int32, d *Delta) {
	if len(active) > len(m.neuronOf) {
		panic(fmt.Sprintf("resident: %d active neurons, %d slots", len(active), len(m.neuronOf)))
	}
	d.In, d.Out, d.Slots = d.In[:0], d.Out[:0], d.Slots[:0]
	last := int32(-1)
	for _, n := range active {
		if n <= last {
			panic(fmt.Sprintf("resident: active set not ascending at neuron %d", n))
		}
		last = n
		if m.slotOf[n] < 0 {
			d.In = append(d.In, n)
		}
	}
	d.Reused = len(active) - len(d.In)
	if d.Reused < m.used {
		d.Out = m.missing(active, d.Out)
	}
	for s := 0; m.used < len(m.neuronOf) && len(d.Slots) < len(d.In) && s < len(m.neuronOf); s++ {
		if m.neuronOf[s] < 0 {
			d.Slots = append(d.Slots, int32(s))
		}
	}
	d.free = len(d.Slots)
	for j := 0; len(d.Slots) < len(d.In); j++ {
		d.Slots = append(d.Slots, m.slotOf[d.Out[j]])
	}
}

// missing appends the residents that are not in active.
func (m *Map) missing(active, out []int32) []int32 {
	a := 0
	for w, word := range m.resident {
		for ; word != 0; word &= word - 1 {
			n := int32(w<<6 | bits.TrailingZeros64(word))
			for a < len(active) && active[a] < n {
				a++
			}
			if a == len(active) || active[a] != n {
				out = append(out, n)
			}
		}
	}
	return out
}

// Commit makes a planned delta true. done[i] says that In[i] has been placed; nil means all. Where In[i] is not done the map
// stays as it was: In[i] is not resident, and the neuron that was to give up its slot still is.
func (m *Map) Commit(d *Delta, done []bool) {
	for j, n := range d.Out {
		i := d.free + j
		if i < len(d.In) && done != nil && !done[i] {
			continue
		}
		m.evict(n, m.slotOf[n])
	}
	for i, n := range d.In {
		if done == nil || done[i] {
			m.put(n, d.Slots[i])
		}
	}
}
