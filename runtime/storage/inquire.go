package storage

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
)

// RingState is what the kernel gives of io_uring, for people who want to know before a run.
type RingState struct {
	Refused       error  // nil where a ring works
	Advice        string // what to change when it is refused
	CoopTaskrun   bool   // the set-up flags that the kernel takes
	SingleIssuer  bool
	DeferTaskrun  bool
	BuffersLocked error // nil where a buffer of the default staging's size may be registered
}

// Inquire sets up a small ring, sends a no-op through it, registers memory and takes everything down again.
func Inquire() RingState { return inquire(kernelCalls) }

func inquire(calls ringCalls) (s RingState) {
	runtime.LockOSThread() // a ring with SINGLE_ISSUER belongs to the thread that made it
	defer runtime.UnlockOSThread()
	refuse := func(err error) RingState {
		s.Refused, s.Advice = err, uringAdvice(err)
		return s
	}
	stage, free, err := AllocAligned(DefaultQueueDepth * DefaultStagingPiece)
	if err != nil {
		return refuse(err)
	}
	defer free()
	u, _, _, err := newURing(calls, -1, make([]op, 1), stage)
	if err != nil {
		return refuse(err)
	}
	defer u.close()
	f := u.ring.flags
	s.CoopTaskrun, s.SingleIssuer, s.DeferTaskrun = f&setupCoopTaskrun != 0, f&setupSingleIssuer != 0, f&setupDeferTaskrun != 0
	if !u.fixedBuf {
		s.BuffersLocked = errors.New("the kernel registers no buffer of that size")
		if e := u.ring.registerBuffers(stage); e != 0 {
			s.BuffersLocked = e
		}
	}
	return s
}

// LockedLimit is how many bytes the process may lock; −1 is no limit. A process that may lock anything (root in most
// containers) is not held by it.
func LockedLimit() (soft, hard int64) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return -1, -1
	}
	of := func(v uint64) int64 {
		if v >= 1<<62 {
			return -1
		}
		return int64(v)
	}
	return of(r.Cur), of(r.Max)
}
