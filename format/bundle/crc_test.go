package bundle

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

func TestCRC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 40_000)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for _, n := range []int{0, 1, 63, 64, 65, 8191, 8192, 8193, 16384, 25084, 40_000} {
		if got, want := CRC(b[:n]), crc32.Checksum(b[:n], castagnoli); got != want {
			t.Errorf("%d bytes: %#08x, want %#08x", n, got, want)
		}
	}
}

// BenchmarkCRC takes records of Mistral-7B's size from 256 MiB, so from memory.
func BenchmarkCRC(b *testing.B) {
	const record = 25_088
	mem := make([]byte, 256<<20)
	for i := 0; i < len(mem); i += 4096 {
		mem[i] = 1
	}
	for _, c := range []struct {
		name string
		sum  func([]byte) uint32
	}{{"touched", CRC}, {"plain", func(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(record)
			at := 0
			for b.Loop() {
				c.sum(mem[at : at+record])
				if at += record; at+record > len(mem) {
					at = 0
				}
			}
		})
	}
}
