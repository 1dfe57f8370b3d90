#!/usr/bin/env python3
"""Writes the reference values of the dequantisation tests and one small file, with the Python package `gguf` (0.17 or later).

Usage: make_golden.py OUT_DIR
OUT_DIR/quant/TYPE.bin: blocks of random bytes with finite scales; TYPE.f32: what `gguf.quants.dequantize` makes of them (little-endian float32).
OUT_DIR/small.gguf: every kind of value and a few tensors, written by GGUFWriter; small.json: its keys (integers and floats as they are) and tensors.
"""
import json, pathlib, sys
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T
from gguf.quants import dequantize, quantize

VALUES = 1024
SCALES = {  # byte offsets of the float16 scales in a block
    T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}

def blocks(rng, t):
    per, size = gguf.GGML_QUANT_SIZES[t]
    n = VALUES // per
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for off in SCALES[t]:
        s = (rng.standard_normal(n) * 0.05).astype(np.float16)
        s[0] = np.float16(6e-8)  # subnormal
        if n > 2:
            s[1] = 0; s[2] = -s[2]
        b[:, off:off + 2] = s.view(np.uint8).reshape(n, 2)
    return b

def main():
    out = pathlib.Path(sys.argv[1]); q = out / "quant"; q.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20250207)
    x = (rng.standard_normal(VALUES) * 3).astype(np.float32)
    x[:8] = [0, -0.0, 1e-8, -1e-7, 60000, 1, 0.333333, -2.5]
    plain = {T.F32: x.view(np.uint8), T.F16: x.astype(np.float16).view(np.uint8), T.BF16: quantize(x.reshape(1, -1), T.BF16).view(np.uint8).reshape(-1)}
    for t in list(plain) + list(SCALES):
        raw = plain[t] if t in plain else blocks(rng, t).reshape(-1)
        (q / f"{t.name}.bin").write_bytes(raw.tobytes())
        v = dequantize(raw.view({T.F32: np.float32, T.F16: np.float16}.get(t, np.uint8)).reshape(1, -1), t).astype("<f4").reshape(-1)
        assert v.size == VALUES and np.isfinite(v).all(), t
        (q / f"{t.name}.f32").write_bytes(v.tobytes())

    w = gguf.GGUFWriter(out / "small.gguf", "llama")
    w.add_uint8("v.u8", 200); w.add_int8("v.i8", -100); w.add_uint16("v.u16", 60000); w.add_int16("v.i16", -30000)
    w.add_uint32("v.u32", 4000000000); w.add_int32("v.i32", -2000000000); w.add_uint64("v.u64", 1 << 60); w.add_int64("v.i64", -(1 << 60))
    w.add_float32("v.f32", 0.5); w.add_float64("v.f64", 0.1); w.add_bool("v.bool", True); w.add_string("v.str", "naïve \n text")
    w.add_array("a.str", ["a", "", "日本"]); w.add_array("a.i32", [1, -2, 3]); w.add_array("a.f32", [0.5, -1.5]); w.add_array("a.bool", [True, False])
    tensors = {"t.f32": (T.F32, (3, 5)), "t.f16": (T.F16, (2, 3, 4)), "t.q8": (T.Q8_0, (4, 64)), "t.q41": (T.Q4_1, (2, 32)), "t.vec": (T.F32, (7,))}
    want = {}
    for name, (t, shape) in tensors.items():
        v = rng.standard_normal(shape).astype(np.float32)
        d = v if t == T.F32 else v.astype(np.float16) if t == T.F16 else quantize(v, t)
        w.add_tensor(name, d, raw_dtype=t)
        want[name] = dict(type=t.name, shape=list(shape), values=[float(f) for f in dequantize(d, t).astype(np.float32).reshape(-1)])
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
    keys = {"v.u8": 200, "v.i8": -100, "v.u16": 60000, "v.i16": -30000, "v.u32": 4000000000, "v.i32": -2000000000, "v.u64": 1 << 60, "v.i64": -(1 << 60),
            "v.f32": 0.5, "v.f64": 0.1, "v.bool": True, "v.str": "naïve \n text", "a.str": ["a", "", "日本"], "a.i32": [1, -2, 3], "a.f32": [0.5, -1.5], "a.bool": [True, False],
            "general.architecture": "llama"}
    (out / "small.json").write_text(json.dumps(dict(keys=keys, tensors=want), ensure_ascii=False, indent=1) + "\n")

if __name__ == "__main__":
    main()
