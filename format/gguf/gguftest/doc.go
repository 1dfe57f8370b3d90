// Package gguftest writes small GGUF files for tests. It shares no code with the reader, and writes wrong files as readily as right ones.
//
// Only tests import it; it imports nothing of ours. Start at New.
package gguftest
