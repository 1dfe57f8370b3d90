module neuroprefetcher

go 1.26.8

require (
	codeberg.org/go-fonts/liberation v0.5.0 // charts: their font
	github.com/dlclark/regexp2 v1.12.0 // pre-tokenizer patterns with lookahead
	github.com/gofrs/flock v0.13.2 // one run per work folder
	github.com/google/go-cmp v0.7.0 // tests
	github.com/google/renameio/v2 v2.0.2 // atomic files
	github.com/gpustack/gguf-parser-go v0.28.2 // tests: oracle of the GGUF reader
	github.com/jedib0t/go-pretty/v6 v6.9.2 // tables of nprun bench
	github.com/klauspost/cpuid/v2 v2.4.2 // choice of kernels
	github.com/nikolalohinski/gonja/v2 v2.9.1 // chat templates
	github.com/nlpodyssey/safetensors v0.0.0-20250209183917-bfb01cc25f7c // safetensors headers
	github.com/rogpeppe/go-internal v1.16.0 // tests: command scripts
	github.com/schollz/progressbar/v3 v3.19.1 // progress on a terminal
	github.com/urfave/cli/v2 v2.27.7 // commands
	github.com/x448/float16 v0.8.4 // tests: oracle of the conversions
	go.uber.org/goleak v1.3.0 // tests
	golang.org/x/image v0.30.0 // charts: reading the font
	golang.org/x/sys v0.50.0 // io_uring, O_DIRECT, statx
	golang.org/x/term v0.48.0 // is it a terminal
	golang.org/x/text v0.44.0 // NFC and NFKC
	gonum.org/v1/gonum v0.17.0 // regression, quantiles
)

require (
	github.com/cpuguy83/go-md2man/v2 v2.0.7 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/henvic/httpretty v0.1.4 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/mattn/go-runewidth v0.0.16 // indirect
	github.com/mitchellh/colorstring v0.0.0-20190213212951-d06e56a500db // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/rivo/uniseg v0.4.7 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/sirupsen/logrus v1.9.3 // indirect
	github.com/smallnest/ringbuffer v0.0.0-20241116012123-461381446e3d // indirect
	github.com/xrash/smetrics v0.0.0-20240521201337-686a1a2994c1 // indirect
	golang.org/x/crypto v0.29.0 // indirect
	golang.org/x/exp v0.0.0-20241108190413-2d47ceb2692f // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
)
