# tiny: a Llama-shaped model of 1.6 million parameters trained on generated stories; everything is in this folder.
TINY := $(BUILD)/tiny
TINY_PREPARE = bin/npprep prepare --model pipelines/tiny/checkpoint --text pipelines/tiny/calibration.txt \
  --sparsity 0.31 --centroids 64 --window 256 --work $(TINY)/work --out $(TINY)/bundle

.PHONY: tiny
tiny: build ## the tiny model: prepare, measure its quality, then a story
	$(TINY_PREPARE)
	bin/nprun verify -b $(TINY)/bundle
	bin/npprep eval -b $(TINY)/bundle --text pipelines/tiny/heldout.txt --windows 2 --work $(TINY)/work --plots $(TINY)/work/plots
	@$(TINY_PREPARE) --quiet >/dev/null # everything is there; its report takes the figures in
	@echo "report   $(TINY)/work/report.html"
	bin/nprun generate -b $(TINY)/bundle --mode sparse --memory 64MiB --prompt "The fog had not lifted yet when" --max-tokens 120
