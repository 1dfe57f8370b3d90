package engine

import (
	"context"
	"slices"
	"time"

	"neuroprefetcher/format"
	"neuroprefetcher/format/bundle"
	"neuroprefetcher/kernels"
	"neuroprefetcher/runtime/predictor"
	"neuroprefetcher/runtime/resident"
	"neuroprefetcher/runtime/storage"
)

// sparseLayer is one layer behind the dense prefix: K_max slots, the map of who sits where, and the reads of the
// token in progress.
type sparseLayer struct {
	layer   int
	slots   []byte   // (K_max, Stride) records, as in the file
	mem     []uint16 // the same memory
	slotMap *resident.Map
	pins    []int32
	active  []int32 // (K_max) ascending: the neurons of the token in progress
	delta   resident.Delta
	batch   storage.Batch
	items   []storage.Item
	off     []int // (K_max) where the records of active begin in mem
	sent    bool  // batch submitted and not yet waited for
}

func (e *Engine) newSparseLayer(layer, kMax int, slots []byte) *sparseLayer {
	s := &sparseLayer{layer: layer, slots: slots, mem: kernels.BytesU16(slots),
		slotMap: resident.NewMap(e.geometry.Neurons, kMax),
		pins:    e.selector.Pins(layer), active: make([]int32, kMax), items: make([]storage.Item, kMax), off: make([]int, kMax)}
	s.batch.Done, s.batch.InPlace = make([]bool, kMax), true
	return s
}

// request chooses the layer's next active set by scores (M), and submits the reads of those not resident.
func (e *Engine) request(s *sparseLayer, scores []float32) {
	e.chooser.Pins = s.pins
	e.chooser.Choose(scores, s.slotMap, s.active)
	s.slotMap.Plan(s.active, &s.delta)
	stride := e.geometry.Stride
	for i, n := range s.delta.In {
		at := int(s.delta.Slots[i]) * stride
		s.items[i] = storage.Item{Off: e.geometry.RecordOffset(s.layer, int(n)), Dst: s.slots[at : at+stride : at+stride]}
		s.batch.Done[i] = false
	}
	s.batch.Items = s.items[:len(s.delta.In)]
	e.reader.Submit(&s.batch)
	s.sent = true
}

// finish waits for the layer's rows, checks them and commits them to the slot map. Rows that did not arrive are not in
// the map afterwards, and a row that one of them has overwritten is not either: the map says what the slots hold.
func (e *Engine) finish(s *sparseLayer) error {
	t := time.Now()
	err := e.reader.Wait(&s.batch)
	e.ioWait += time.Since(t)
	s.sent = false
	done := s.batch.Done[:len(s.delta.In)]
	if i := slices.Index(done, false); err != nil && i >= 0 {
		err = rowError(s.layer, int(s.delta.In[i]), err)
	}
	e.checkRows(s)
	if i := slices.Index(done, false); err == nil && i >= 0 {
		if err = e.checkRecord(s.layer, int(s.delta.In[i]), s.items[i].Dst); err == nil {
			err = format.Corruptf("layer %d, neuron %d: changed while it was checked", s.layer, s.delta.In[i])
		}
	}
	if err != nil {
		for i, slot := range s.delta.Slots {
			if old := s.slotMap.Neuron(slot); !done[i] && old >= 0 && e.checkRecord(s.layer, int(old), s.items[i].Dst) != nil {
				s.slotMap.Drop(old)
			}
		}
	}
	s.slotMap.Commit(&s.delta, done)
	if err != nil {
		return err
	}
	stride := e.geometry.Stride / 2
	for i, n := range s.active {
		s.off[i] = int(s.slotMap.Slot(n)) * stride
	}
	return nil
}

// drain waits for every submitted read, so that buffers and maps are at rest after a cancelled or failed token.
func (e *Engine) drain() {
	for _, s := range e.sparse {
		if s != nil && s.sent {
			_ = e.finish(s) // the failure that matters is already on its way up
		}
	}
	if e.stream != nil {
		e.stream.stop()
	}
}

// checkRecord compares a record read from disk with its checksum.
func (e *Engine) checkRecord(layer, neuron int, rec []byte) error {
	if e.geometry.Trailer {
		return e.Bundle.In(bundle.CheckRecord(e.geometry, layer, neuron, rec))
	}
	return e.Bundle.In(bundle.CheckRecordCRC(e.geometry, layer, neuron, rec, e.rowCRC[layer*e.geometry.Neurons+neuron]))
}

// rowError says which neuron a failed read was for; the cause names file and offset.
func rowError(layer, neuron int, err error) error {
	return format.Hint(format.IOf("layer %d neuron %d: %w", layer, neuron, err), "check the drive and run: nprun verify -b BUNDLE")
}

// sparseRequests asks the selector for every sparse layer's scores and submits all reads of the token, in layer order.
func (e *Engine) sparseRequests(ctx context.Context) error {
	t := time.Now()
	for l := e.Plan.Dense; l < e.Config.Layers; l++ {
		e.selector.Scores(l, e.scores)
		e.request(e.sparse[l], e.scores)
	}
	e.predict += time.Since(t)
	return ctx.Err()
}

// look shows a stepwise selector the residual stream at a site, and submits the reads of the layers that it names there.
func (e *Engine) look(s predictor.Stepwise, site int) {
	t := time.Now()
	for _, l := range s.Look(e.m.Pool, site, e.x) {
		s.Scores(l, e.scores)
		e.request(e.sparse[l], e.scores)
	}
	e.predict += time.Since(t)
}

// observe hands layer 0's features to the selector.
func (e *Engine) observe(gate []float32) {
	t := time.Now()
	if e.gate0 != nil {
		e.features.Gate0 = e.gate0.Gate0(gate)
	}
	e.selector.Observe(e.m.Pool, &e.features)
	e.predict += time.Since(t)
}

// gate0Namer is a selector that wants the id of layer 0's gate centroid.
type gate0Namer interface{ Gate0(gate []float32) int32 }

var _ gate0Namer = (*predictor.Paper)(nil)
