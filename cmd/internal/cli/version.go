package clix

import (
	"runtime/debug"
	"strings"
)

// Version is the release of both programs.
const Version = "0.1.0"

// Revision is the commit that the program was built from, or "".
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var rev, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+"
			}
		}
	}
	return strings.TrimSpace(rev + dirty)
}
