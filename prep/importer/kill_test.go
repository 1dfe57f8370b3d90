package importer

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestMain lets the test binary be the import that TestKilled kills: arguments GGUF and OUT in the environment, a pause after each piece.
func TestMain(m *testing.M) {
	if path := os.Getenv("NP_TEST_IMPORT"); path != "" {
		pause := func(int64, int64) { time.Sleep(time.Millisecond) }
		if _, err := Import(context.Background(), path, os.Getenv("NP_TEST_OUT"), Options{Progress: pause}); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKilled kills an import at many moments. The output is then what it was before or the whole new one, and the next run goes through.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	var want [2]string
	var paths [2]string
	for i := range paths {
		m := tiny("llama")
		m.weights["model.norm.weight"][0] = float32(i)
		paths[i] = m.file().Write(t, filepath.Join(dir, "m"+strconv.Itoa(i)+".gguf"))
		if _, err := Import(context.Background(), paths[i], out, Options{}); err != nil {
			t.Fatal(err)
		}
		want[i] = content(t, out)
	}
	now, killed := 1, 0
	for round := range 20 {
		next := 1 - now
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "NP_TEST_IMPORT="+paths[next], "NP_TEST_OUT="+out)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(5+round*4) * time.Millisecond)
		cmd.Process.Kill()
		if cmd.Wait() != nil {
			killed++
		}
		switch got := content(t, out); got {
		case want[now]:
		case want[next]:
			now = next
		default:
			t.Fatalf("round %d: the output is neither the old nor the new one: %q", round, names(t, out))
		}
	}
	if killed == 0 {
		t.Error("every run ended before it was killed: the test shows nothing")
	}
	if _, err := Import(context.Background(), paths[0], out, Options{}); err != nil || content(t, out) != want[0] {
		t.Fatal("the run after the killed ones: ", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"m0.gguf", "m1.gguf", "out"}) {
		t.Errorf("left %q", got)
	}
}

// FuzzTokenizer: whatever the header says of the tokenizer, it is refused in one line or makes a file that the runtime takes or refuses without trouble.
func FuzzTokenizer(f *testing.F) {
	f.Add("gpt2", "smollm", "a b ab", "a b", []byte{1, 1, 1}, uint32(1), uint32(2), true)
	f.Add("llama", "", "<unk> <s> </s> a b ab", "", []byte{2, 3, 3, 1, 1, 1}, uint32(1), uint32(2), false)
	f.Fuzz(fuzzTokenizer)
}
