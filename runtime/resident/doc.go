// Package resident decides which neurons of a sparse layer sit in memory, and where. Pure: no I/O, no goroutines, nothing
// allocated once the tables have reached their size. It imports nothing of ours.
//
// Start at Map: the slot map S(l)[n] of one layer, neuron id → buffer slot. Plan compares it with the next active set and fills
// a Delta (what to read into which slot, what leaves); Commit makes the delta true once the rows have arrived. Chooser turns a
// selector's scores into the next active set.
//
// Invariants (each is a property test against a brute-force model):
//   - slots are unique, and Slot and Neuron are inverse to each other;
//   - after a complete Commit the resident set is exactly the active set;
//   - entries of a delta that were not read leave the map as it was;
//   - rows needed = rows reused + rows read;
//   - a chosen set has exactly KMax ids, ascending, depends on nothing but scores, map and settings.
package resident
