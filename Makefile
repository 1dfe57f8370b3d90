# Two commands set a fresh machine up: `make demo` and `make test`. They need Go and a C-less Linux box, nothing else.
SHELL := /bin/bash
GO ?= go
BUILD ?= build
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME ?= 5s

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build npprep and nprun into bin/
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/npprep ./cmd/nprun

.PHONY: install
install: ## install npprep and nprun into $GOBIN
	CGO_ENABLED=0 $(GO) install ./cmd/npprep ./cmd/nprun

include pipelines/tiny/pipeline.mk pipelines/smollm2-135m/pipeline.mk pipelines/mistral-7b/pipeline.mk pipelines/llama-3-8b/pipeline.mk pipelines/peers/pipeline.mk

.PHONY: demo
demo: tiny ## prepare the tiny model and let it tell a story

.PHONY: test
test: ## build everything and run the tests
	$(GO) build ./...
	$(GO) test ./...

.PHONY: check
check: fmt vet staticcheck arm64 test purego race fuzz ## everything a change must pass

.PHONY: fmt vet staticcheck arm64 purego race fuzz bench
fmt: ## fail when gofmt would change a file
	@test -z "$$(gofmt -l . | tee /dev/stderr)"

vet: ## go vet, with and without assembly, amd64 and arm64
	$(GO) vet ./...
	$(GO) vet -tags purego ./kernels
	GOARCH=arm64 $(GO) vet ./kernels ./runtime/... ./format/...

staticcheck: ## staticcheck at a pinned version
	$(GO) run $(STATICCHECK) ./...

arm64: ## cross-build, and run the arm64 kernel and format tests when qemu-aarch64-static is there
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build -o $(BUILD)/arm64/ ./cmd/npprep ./cmd/nprun
	@if command -v qemu-aarch64-static >/dev/null; then \
	  for p in kernels format format/tensors format/checkpoint format/bundle format/gguf; do \
	    GOARCH=arm64 CGO_ENABLED=0 $(GO) test -c -o $(BUILD)/arm64/test ./$$p && (cd $$p && qemu-aarch64-static $(CURDIR)/$(BUILD)/arm64/test -test.short) || exit 1; done; \
	else echo "arm64: built, tests NOT run: install qemu-user-static to run them"; fi

purego: ## the kernel and model tests without assembly
	$(GO) test -tags purego ./kernels ./runtime/model

race: ## the concurrent packages under the race detector (needs a C compiler)
	$(GO) test -race -short ./kernels ./runtime/... ./prep/stage

fuzz: ## every fuzz target for FUZZTIME
	@set -e; for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	  echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p; done; done

bench: ## the benchmarks of the hot paths
	$(GO) test -run '^$$' -bench . -benchmem ./kernels ./runtime/storage

.PHONY: clean
clean: ## remove bin/ and build/
	rm -rf bin $(BUILD)
