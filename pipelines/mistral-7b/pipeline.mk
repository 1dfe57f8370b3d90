# mistral-7b: Mistral-7B (v0.1 to v0.3, base or instruct) from a local checkpoint directory.
#   make mistral-7b MODEL=DIR TEXT="FILE..." [MISTRAL_K_MAX=5500|7168|9865]
# K_max 5,500 / 7,168 / 9,865 of 14,336 are 62 / 50 / 31 % sparsity.
MISTRAL_K_MAX ?= 5500
.PHONY: mistral-7b
mistral-7b: build ## prepare a Mistral-7B checkpoint: MODEL=DIR TEXT=FILE
	@test -n "$(MODEL)" || { echo "usage: make mistral-7b MODEL=DIR TEXT=FILE" >&2; exit 2; }
	@test -n "$(TEXT)" || { echo "usage: make mistral-7b MODEL=DIR TEXT=FILE (calibration text, about 1 MB)" >&2; exit 2; }
	bin/npprep prepare --model "$(MODEL)" $(foreach f,$(TEXT),--text $(f)) --k-max $(MISTRAL_K_MAX) --centroids 512 --dim 512 \
	  --dense-layers 10 --work $(BUILD)/mistral-7b/work --out $(BUILD)/mistral-7b/bundle-$(MISTRAL_K_MAX)
	bin/nprun plan -b $(BUILD)/mistral-7b/bundle-$(MISTRAL_K_MAX)
