package engine

// checkRows checks the rows of a layer that arrived, on all threads: what does not match its checksum is not done.
func (e *Engine) checkRows(s *sparseLayer) {
	if e.runCheck == nil {
		e.runCheck = e.checkRange // once: a method value allocates
	}
	e.checking = s
	e.m.Pool.Run(len(s.delta.In), checkGrain, e.runCheck)
}

func (e *Engine) checkRange(lo, hi int) {
	s := e.checking
	done := s.batch.Done
	for i := lo; i < hi; i++ {
		if done[i] && e.checkRecord(s.layer, int(s.delta.In[i]), s.items[i].Dst) != nil {
			done[i] = false
		}
	}
}
