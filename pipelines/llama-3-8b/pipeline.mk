# llama-3-8b: Llama 3 or 3.1 8B, base or instruct, from a local checkpoint directory.
#   make llama-3-8b MODEL=DIR TEXT="FILE..." [LLAMA3_K_MAX=5500|7168|9865]
# K_max 5,500 / 7,168 / 9,865 of 14,336 are 62 / 50 / 31 % sparsity.
LLAMA3_K_MAX ?= 5500
.PHONY: llama-3-8b
llama-3-8b: build ## prepare a Llama-3-8B checkpoint: MODEL=DIR TEXT=FILE
	@test -n "$(MODEL)" || { echo "usage: make llama-3-8b MODEL=DIR TEXT=FILE" >&2; exit 2; }
	@test -n "$(TEXT)" || { echo "usage: make llama-3-8b MODEL=DIR TEXT=FILE (calibration text, about 1 MB)" >&2; exit 2; }
	bin/npprep prepare --model "$(MODEL)" $(foreach f,$(TEXT),--text $(f)) --k-max $(LLAMA3_K_MAX) --centroids 512 --dim 512 \
	  --dense-layers 10 --work $(BUILD)/llama-3-8b/work --out $(BUILD)/llama-3-8b/bundle-$(LLAMA3_K_MAX)
	bin/nprun plan -b $(BUILD)/llama-3-8b/bundle-$(LLAMA3_K_MAX)
