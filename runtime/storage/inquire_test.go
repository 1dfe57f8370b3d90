package storage

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestInquire holds that every way of refusing a ring is told with what to change, and that a kernel without the newer
// flags is told apart from one that has them.
func TestInquire(t *testing.T) {
	for _, e := range []syscall.Errno{unix.EPERM, unix.ENOSYS, unix.ENOMEM} {
		calls := kernelCalls
		calls.setup = func(uint32, *ringParams) (int, syscall.Errno) { return -1, e }
		if s := inquire(calls); !errors.Is(s.Refused, e) || s.Advice == "" || s.CoopTaskrun {
			t.Errorf("%v: %+v", e, s)
		}
	}
	s := Inquire()
	if s.Refused != nil {
		t.Skipf("no io_uring here: %v", s.Refused)
	}
	old := kernelCalls
	old.setup = func(n uint32, p *ringParams) (int, syscall.Errno) {
		if p.flags&(setupSingleIssuer|setupDeferTaskrun) != 0 {
			return -1, unix.EINVAL
		}
		return kernelCalls.setup(n, p)
	}
	if s := inquire(old); s.Refused != nil || s.SingleIssuer || s.DeferTaskrun {
		t.Errorf("a kernel of 5.19: %+v", s)
	}
}
