#!/usr/bin/env python3
"""Writes spm_merges.json: a small SentencePiece-like vocabulary with scores and types, and the merges that Hugging Face's converter derives from it.

Usage: make_merges.py OUT_FILE      (needs transformers 5)
"""
import json, random, sys
import numpy as np
from transformers.tokenization_utils_base import generate_merges

def main():
    r = random.Random(7)
    letters = list("▁abcdeé日本")
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    have = set(pieces)
    body = []
    while len(body) < 300:
        p = "".join(r.choice(letters) for _ in range(r.choice([2, 2, 2, 3, 3, 4, 5])))
        if p not in have:
            have.add(p); body.append(p)
    pieces += body + letters + ["ab[x]", "<s>a"]
    kinds += [1] * (len(body) + len(letters)) + [4, 3]
    # Scores fall with the id, as the trainer writes them; some are equal, so that the tie order shows.
    scores = [0.0] * 259 + [-float(i // 3) for i in range(len(body))] + [-float(len(body) + i) for i in range(len(letters))] + [-1000.0, -1000.0]
    vocab = {p: i for i, p in enumerate(pieces)}
    skip = [p for p, k in zip(pieces, kinds) if k != 1]
    merges = generate_merges(vocab, dict(zip(pieces, (float(np.float32(s)) for s in scores))), skip_tokens=skip)
    assert len(merges) > 300, len(merges)
    json.dump(dict(tokens=pieces, types=kinds, scores=scores, merges=merges), open(sys.argv[1], "w"), ensure_ascii=False)
    print(len(pieces), "pieces", len(merges), "merges")

if __name__ == "__main__":
    main()
