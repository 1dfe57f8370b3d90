package storage

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

// The test binary runs itself again as a small reading program, so that faults can be injected into a process of its own.
const helperEnv = "NP_STORAGE_HELPER"

func TestMain(m *testing.M) {
	if args := os.Getenv(helperEnv); args != "" {
		runtime.LockOSThread() // strace counts calls by thread: "the first open" must not be the first of two threads
		os.Exit(helper(args))
	}
	goleak.VerifyTestMain(m)
}

// helperJob is what the helper is to do; helperReport what it prints.
type helperJob struct {
	Path    string
	Options Options
	Seed    uint64
	Memlock int // RLIMIT_MEMLOCK to set, in bytes; < 0: leave
}

type helperReport struct {
	Sum   uint64 // of everything read
	Info  Info
	Stats Stats
	Error string
}

func helper(args string) int {
	var job helperJob
	if err := json.Unmarshal([]byte(args), &job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var rep helperReport
	if err := runJob(&job, &rep); err != nil {
		rep.Error = err.Error()
	}
	json.NewEncoder(os.Stdout).Encode(rep)
	return 0
}
