#!/usr/bin/env python3
"""Writes STYLE/golden-extra.jsonl: random Unicode texts and ids through the Hugging Face `tokenizers` package (0.23.3), for the four styles here and for
variants made from them (Metaspace with its three prepend schemes, Split behaviours, added tokens with every flag), whose tokenizer.json is written too.

Usage: make_extra.py DIR [TEXTS_PER_STYLE] [SEED]     DIR holds STYLE/tokenizer.json and receives the files
"""
import copy, json, pathlib, random, sys
from tokenizers import Tokenizer

POOLS = ["abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "0123456789", " ", " ", "\n\r\t", " \u00a0\u3000\u2003\u0085\u200b\u2028\x0b\x0c\x1c", ".,;:!?'\"-_()[]{}<>|/\\@#$%^&*~`", "éüñçßøåžĄ", "абвгдЖЯ",
         "你好世界价格円", "한국어가각", "😀👩👧🏽\u200d\ufe0f🇩🇪", "\u0301\u0308\u0323\u093f", "½²①٣৪Ⅷ", "\u0000\u0001\u007f\ufffd\ufeff\U0010ffff", "ﬁſKÅⅷ", "▁Ġ"]
PIECES = ["hello", " world", " the", "'s", "'LL", "'ſx", "it's", "  ", "\n\n", " \n ", "<s>", "</s>", "<|end|>", "<|begin|>", "<|user|>", "<unk>", "<0x41>", "foo", "Bar", " a", "1234567", "e\u0301", "Grüße", "....", "<a>", "<b>", "<c>", "<d>", "w<c>w", "<|end|", "<b> <b>"]

def random_text(r):
    out = []
    for _ in range(r.randint(0, 14)):
        if r.random() < 0.4: out.append(r.choice(PIECES))
        else:
            pool = r.choice(POOLS); out.append("".join(r.choice(pool) for _ in range(r.randint(1, 5))))
    return "".join(out)

def variants(base):
    v = {}
    bl = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            j = copy.deepcopy(base["llama2"]); meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}
            j["normalizer"], j["pre_tokenizer"], j["decoder"] = None, meta, {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}]}
            j["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}; v[f"metaspace-{scheme}-{'split' if split else 'whole'}"] = j
    j = copy.deepcopy(base["llama2"]); j["decoder"] = None; j["model"]["byte_fallback"] = False; v["unk-fused"] = j
    j = copy.deepcopy(j); j["model"]["fuse_unk"] = False; v["unk-single"] = j
    for b in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext"):
        for inv in (False, True):
            j = copy.deepcopy(base["smollm2"]); j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": r"\p{L}+|\d"}, "behavior": b, "invert": inv}, {"type": "Split", "pattern": {"String": "e"}, "behavior": b, "invert": False}, dict(bl, use_regex=False)]}
            v[f"split-{b}{'-inverted' if inv else ''}"] = j
    j = copy.deepcopy(base["smollm2"]); j["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, dict(bl, add_prefix_space=True)]}; v["digit-runs-prefix-space"] = j
    j = copy.deepcopy(base["qwen2"]); j["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}; v["nfkc"] = j
    for name, b in (("added-bytes", "llama3"), ("added-spm", "llama2")):
        j = copy.deepcopy(base[b]); n = max(max(j["model"]["vocab"].values()), max(a["id"] for a in j["added_tokens"])) + 1
        for i, (c, kw) in enumerate([("<a>", dict(lstrip=True)), ("<b>", dict(rstrip=True)), ("<c>", dict(single_word=True)), ("<d>", dict(normalized=True, special=False)), ("<|end|", dict(special=False)), ("foo", dict(single_word=True, lstrip=True, rstrip=True, special=False)), ("e\u0301", dict(normalized=True, special=False))]):
            j["added_tokens"].append(dict(dict(id=n + i, content=c, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True), **kw))
        v[name] = j
    return v

def main():
    root = pathlib.Path(sys.argv[1]); count = int(sys.argv[2]) if len(sys.argv) > 2 else 60; seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    base = {s: json.loads((root / s / "tokenizer.json").read_text()) for s in ("llama2", "llama3", "qwen2", "smollm2")}
    for k, (name, j) in enumerate(list(base.items()) + list(variants(base).items())):
        r = random.Random(seed * 1000 + k); d = root / name; d.mkdir(exist_ok=True)
        text = json.dumps(j, ensure_ascii=False, separators=(",", ":"))
        if name not in base: (d / "tokenizer.json").write_text(text)
        t = Tokenizer.from_str(text); byte_ids = [i for s, i in j["model"]["vocab"].items() if s.startswith("<0x")] ; n = t.get_vocab_size()
        with open(d / "golden-extra.jsonl", "w") as f:
            for _ in range(count if name in base else max(count // 3, 12)):
                x = random_text(r); ids = t.encode(x, add_special_tokens=False).ids
                t.encode_special_tokens = True; plain = t.encode(x, add_special_tokens=False).ids; t.encode_special_tokens = False
                f.write(json.dumps(dict(text=x, ids=ids, ids_special=t.encode(x).ids, ids_plain=plain, decoded=t.decode(ids), decoded_all=t.decode(ids, skip_special_tokens=False), random_ids=(q := [r.randrange(n) if r.random() < 0.6 or not byte_ids else r.choice(byte_ids) for _ in range(r.randint(1, 9))]), random_decoded=t.decode(q), random_decoded_all=t.decode(q, skip_special_tokens=False)), ensure_ascii=True) + "\n")

if __name__ == "__main__":
    main()
