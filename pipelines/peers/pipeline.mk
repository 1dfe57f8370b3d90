# bench-peers: nprun beside llama.cpp on the same float16 weights. README.md says how, and what it takes.
#   sudo make bench-peers [PEERS_SHAPE=mistral-7b] [PEERS_LIMITS="11.9GiB 9GiB"] [PEERS_ROUNDS=5] [PEERS_ARGS="--json"]
PEERS := $(BUILD)/peers
PEERS_VERSION := 0.3.36
PEERS_SHAPE ?= mistral-7b
PEERS_LIMITS ?= 11.9GiB 9GiB
PEERS_ROUNDS ?= 5
PEERS_ARGS ?=
PYTHON ?= python3

# The package comes as source: building it takes ten minutes and more, once, and needs a C++ compiler.
$(PEERS)/venv/llama-cpp-python-$(PEERS_VERSION):
	@mkdir -p $(PEERS)
	$(PYTHON) -m venv --clear $(PEERS)/venv
	$(PEERS)/venv/bin/python -m pip install --disable-pip-version-check llama-cpp-python==$(PEERS_VERSION)
	@touch $@

$(SMOLLM2)/bundle-dense/manifest.json: | build
	pipelines/smollm2-135m/fetch.sh $(SMOLLM2)
	bin/npprep import --gguf $(SMOLLM2)/SmolLM2-135M-Instruct.Q4_1.gguf --out $(SMOLLM2)/checkpoint
	bin/npprep prepare --dense --model $(SMOLLM2)/checkpoint --work $(SMOLLM2)/work-dense --out $(SMOLLM2)/bundle-dense

.PHONY: bench-peers
bench-peers: build $(PEERS)/venv/llama-cpp-python-$(PEERS_VERSION) $(SMOLLM2)/bundle-dense/manifest.json ## nprun beside llama.cpp on the same weights, in one memory cgroup; needs root, 32 GB of disk and an hour
	$(PEERS)/venv/bin/python pipelines/peers/peers.py --work $(PEERS) --check $(SMOLLM2)/bundle-dense --resident $(SMOLLM2)/bundle-dense \
	  --shape $(PEERS_SHAPE) $(foreach l,$(PEERS_LIMITS),--limit $(l)) --rounds $(PEERS_ROUNDS) $(PEERS_ARGS)
