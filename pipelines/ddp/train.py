#!/usr/bin/env python3
"""Train NeuroPrefetcher's centroid predictor with PyTorch, on one process or many (DistributedDataParallel).

    npprep train --model MODEL --work WORK --export DIR
    torchrun --nproc_per_node 8 train.py --data DIR --out predictor.safetensors
    npprep train --model MODEL --work WORK --import predictor.safetensors

The network, the loss, the optimizer and the learning rate are those of `npprep train` (prep/train, and
runtime/predictor/network.go for the definition); their constants come from DIR/config.json. The random numbers are not,
so the two agree in what they reach, not in bits. Needs PyTorch 1.13 or later and NumPy; gloo on CPUs, nccl on GPUs.

What a step computes does not depend on the number of processes: every process takes its share of the same batch, and
gradients are those of the mean over the whole batch.
"""

import argparse
import json
import math
import os
import struct
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

VERSION = 1  # of the exchange with npprep: ExchangeVersion in prep/train/exchange.go
FEATURES = ("embed", "attn", "mlp", "resid")
DTYPES = {"F16": np.float16, "F32": np.float32, "I32": np.int32}
HALF_MAX = 65504.0


# ---- safetensors: a header of JSON behind its length, then the bytes ----------------------------------------------


def read_tensors(path):
    """Maps a safetensors file: name -> array."""
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        if n > min(size - 8, 100 << 20):
            sys.exit(f"{path}: header of {n} bytes in a file of {size}")
        header = json.loads(f.read(n))
    out = {}
    for name, t in header.items():
        if name == "__metadata__":
            continue
        dtype, (begin, end), count = np.dtype(DTYPES[t["dtype"]]), t["data_offsets"], math.prod(t["shape"])
        if not 0 <= begin <= end <= size - 8 - n or end - begin != count * dtype.itemsize:
            sys.exit(f"{path}: tensor {name} does not lie in the file")
        if count == 0:
            out[name] = np.zeros(t["shape"], dtype)
            continue
        out[name] = np.memmap(path, dtype, "r", 8 + n + begin, tuple(t["shape"]))
    return out


def write_tensors(path, tensors, meta):
    """Writes name -> array, whole or not at all."""
    header, at = {"__metadata__": meta}, 0
    for name, a in tensors.items():
        kind = next(k for k, v in DTYPES.items() if a.dtype == v)
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    partial = path + ".partial"
    with open(partial, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())
        f.flush()
        os.fsync(f.fileno())
    os.replace(partial, path)


# ---- data ------------------------------------------------------------------------------------------------------


class Data:
    def __init__(self, folder):
        with open(os.path.join(folder, "config.json")) as f:
            self.config = c = json.load(f)
        if c.get("version") != VERSION:
            sys.exit(f"{folder}: data set of version {c.get('version')}, this script reads {VERSION}: export it again")
        t = read_tensors(os.path.join(folder, "data.safetensors"))
        self.features = [t["feat." + name] for name in FEATURES]  # (T, H) float16
        self.gate0, self.ids = t["gate0"], t["ids"]  # (T), (tables, T)
        self.train, self.held = np.array(t["train"]), np.array(t["held"])
        tokens, tables = c["tokens"], len(c["heads"])
        for name, f in zip(FEATURES, self.features):
            if f.shape != (tokens, c["hidden"]):
                sys.exit(f"{folder}: feat.{name} is {f.shape}, want {(tokens, c['hidden'])}")
        if self.gate0.shape != (tokens,) or self.ids.shape != (tables, tokens) or len(self.train) == 0:
            sys.exit(f"{folder}: ids of another shape than the configuration, or nothing to train on")
        for name, a, k in [("gate0", self.gate0, c["gate0"])] + list(zip(c["names"], self.ids, c["heads"])):
            if len(a) and (a.min() < 0 or a.max() >= k):
                sys.exit(f"{folder}: {name} has ids outside of 0..{k - 1}")

    def batch(self, tokens, device):
        """Features (4, B, H), layer 0's gate centroids (B), and the ids to predict (tables, B)."""
        x = np.stack([f[tokens] for f in self.features]).astype(np.float32)
        to = lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(device)
        return to(x), to(self.gate0[tokens].astype(np.int64)), to(self.ids[:, tokens].astype(np.int64))

    def prior(self, table):
        """How often each id occurs in training."""
        return np.bincount(self.ids[table][self.train], minlength=self.config["heads"][table])


# ---- network ----------------------------------------------------------------------------------------------------


class Predictor(torch.nn.Module):
    """x = sum of proj·rms(feature) + gate0[id]; x += w2·silu(w1·(rms(x)⊙norm)), a few times; heads·(rms(x)⊙final) + bias."""

    def __init__(self, c, data, seed):
        super().__init__()
        self.eps, self.heads_k = c["eps"], c["heads"]
        h, t, inner, rows = c["hidden"], c["dim"], c["expand"] * c["dim"], sum(c["heads"])
        g = torch.Generator().manual_seed(seed)
        normal = lambda std, *shape: torch.nn.Parameter(torch.randn(*shape, generator=g) * std)
        ones = lambda n: torch.nn.Parameter(torch.ones(n))
        many = torch.nn.ParameterList
        self.proj = many([normal(0.5 / math.sqrt(h), t, h) for _ in FEATURES])
        self.gate0 = normal(0.5, c["gate0"], t)
        self.w1 = many([normal(1 / math.sqrt(t), inner, t) for _ in range(c["blocks"])])
        self.w2 = many([normal(0.5 / math.sqrt(inner), t, inner) for _ in range(c["blocks"])])
        self.heads = normal(0.1 / math.sqrt(t), rows, t)
        self.norm = many([ones(t) for _ in range(c["blocks"])])
        self.final = ones(t)
        prior = [data.prior(i) + 1.0 for i in range(len(c["heads"]))]
        self.bias = torch.nn.Parameter(torch.from_numpy(np.concatenate([np.log(p / p.sum()) for p in prior])).float())

    def rms(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, features, gate0):
        x = F.embedding(gate0, self.gate0)
        for p, f in zip(self.proj, features):
            x = x + F.linear(self.rms(f), p)
        for w1, w2, norm in zip(self.w1, self.w2, self.norm):
            x = x + F.linear(F.silu(F.linear(self.rms(x) * norm, w1)), w2)
        return F.linear(self.rms(x) * self.final, self.heads, self.bias)

    def tensors(self, names):
        """The file's tensors: matrices in float16, norms and biases in float32."""
        out = {}

        def put(name, p):
            a = p.detach().cpu().numpy()
            if not np.isfinite(a).all() or (a.ndim == 2 and np.abs(a).max() > HALF_MAX):
                sys.exit(f"training diverged: tensor {name} is beyond float16: lower --lr")
            out[name] = a.astype(np.float16 if a.ndim == 2 else np.float32)

        for name, p in zip(FEATURES, self.proj):
            put("proj." + name, p)
        put("gate0.embedding", self.gate0)
        for i in range(len(self.norm)):
            put(f"block.{i}.norm", self.norm[i])
            put(f"block.{i}.w1", self.w1[i])
            put(f"block.{i}.w2", self.w2[i])
        put("final.norm", self.final)
        for name, w, b in zip(names, self.heads.split(self.heads_k), self.bias.split(self.heads_k)):
            put(name, w)
            put(name + ".bias", b)
        return out


# ---- training ---------------------------------------------------------------------------------------------------


def losses(logits, ids, heads):
    """Cross-entropy summed over tokens and tables."""
    if len(set(heads)) == 1:  # all tables are of one size
        return F.cross_entropy(logits.reshape(-1, heads[0]), ids.t().reshape(-1), reduction="sum")
    return sum(F.cross_entropy(part, want, reduction="sum") for part, want in zip(logits.split(heads, 1), ids))


def rate(step, total, c):
    """The learning rate of a step (from 0) as a share of the highest: up in a line, down along half a cosine."""
    up = max(1.0, c["warmup"] * total)
    if step + 1 < up:
        return (step + 1) / up
    done = (step - up + 1) / max(1.0, total - up)
    return c["lowest"] + (1 - c["lowest"]) * 0.5 * (1 + math.cos(math.pi * min(1, max(0, done))))


def share(tokens, rank, world):
    """A process's part of a batch, and how much of it counts: nothing where there are fewer tokens than processes."""
    mine = tokens[rank::world]
    return (mine, 1.0) if len(mine) else (tokens[:1], 0.0)


@torch.no_grad()
def measure(net, data, batch, rank, world, device):
    """Loss, and how often the right id is the first and among the first five, over the held-out tokens."""
    heads = data.config["heads"]
    sums = torch.zeros(3, dtype=torch.float64)
    for lo in range(0, len(data.held), batch):
        tokens = data.held[lo : lo + batch][rank::world]
        if len(tokens) == 0:
            continue
        x, gate0, ids = data.batch(tokens, device)
        logits = net(x, gate0)
        sums[0] += losses(logits, ids, heads).double().cpu()
        for part, want in zip(logits.split(heads, 1), ids):
            score = part.gather(1, want[:, None])
            before = torch.arange(part.shape[1], device=device)[None] < want[:, None]
            place = ((part > score) | ((part == score) & before)).sum(1)  # ties to the lower id
            sums[1] += (place < 1).sum().cpu()
            sums[2] += (place < 5).sum().cpu()
    if world > 1:
        sums = sums.to(device if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(sums)
    return (sums.cpu() / max(1, len(data.held) * len(heads))).tolist()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--data", required=True, help="folder that npprep train --export wrote")
    p.add_argument("--out", required=True, help="file of weights for npprep train --import")
    p.add_argument("--epochs", type=int, help="passes over the data (default: config.json's)")
    p.add_argument("--batch", type=int, help="tokens per step, over all processes (default: config.json's)")
    p.add_argument("--lr", type=float, help="highest learning rate (default: config.json's)")
    p.add_argument("--seed", type=int, help="default: config.json's")
    p.add_argument("--state", help="file to save to after every epoch, and to go on from; made by this script only")
    a = p.parse_args()

    rank, world, local = (int(os.environ.get(k, d)) for k, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if world > 1:
        if cuda:
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if cuda else "gloo")
    say = lambda *s: print(*s, file=sys.stderr, flush=True) if rank == 0 else None

    data = Data(a.data)
    c = data.config
    for name in ("epochs", "batch", "lr", "seed"):
        if getattr(a, name) is not None:
            c[name] = getattr(a, name)
    if c["epochs"] < 1 or c["batch"] < 1 or not 0 < c["lr"] < 1:
        sys.exit(f"{c['epochs']} epochs, batch {c['batch']}, rate {c['lr']}: out of range")
    net = Predictor(c, data, c["seed"] % 2**63).to(device)
    decayed = [w for w in net.parameters() if w.dim() == 2]
    plain = [w for w in net.parameters() if w.dim() != 2]  # norms and biases do not decay
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": c["decay"]}, {"params": plain, "weight_decay": 0.0}],
                            lr=c["lr"], betas=(c["beta1"], c["beta2"]), eps=c["adam_eps"])
    first, step, history = 0, 0, []
    if a.state and os.path.exists(a.state):
        s = torch.load(a.state, map_location=device)
        if s["config"] != c:
            sys.exit(f"{a.state}: saved with other data or parameters: remove it to begin anew")
        net.load_state_dict(s["net"])
        opt.load_state_dict(s["opt"])
        first, step, history = s["epoch"], s["step"], s["history"]
    model = DistributedDataParallel(net, device_ids=[local] if cuda else None) if world > 1 else net

    heads, n = c["heads"], len(data.train)
    steps = c["epochs"] * ((n + c["batch"] - 1) // c["batch"])
    say(f"{n} tokens, {sum(w.numel() for w in net.parameters())} parameters, {world} processes on {device.type}")
    start, done = time.time(), 0
    for epoch in range(first, c["epochs"]):
        order = data.train[np.random.default_rng([c["seed"] % 2**63, epoch]).permutation(n)]
        total = torch.zeros(1, dtype=torch.float64)
        for lo in range(0, n, c["batch"]):
            tokens = order[lo : lo + c["batch"]]
            mine, counts = share(tokens, rank, world)
            for group in opt.param_groups:
                group["lr"] = c["lr"] * rate(step, steps, c)
            loss = losses(model(*(b := data.batch(mine, device))[:2]), b[2], heads) * counts
            if not torch.isfinite(loss):
                sys.exit(f"training diverged: loss {loss.item()} at step {step}: lower --lr")
            opt.zero_grad(set_to_none=True)
            # DDP averages gradients over the processes; the batch's mean is their sum over all of its tokens.
            (loss * (world / (len(tokens) * len(heads)))).backward()
            opt.step()
            total += loss.detach().double().cpu()
            step, done = step + 1, done + len(tokens)
        if world > 1:
            total = total.to(device if cuda else "cpu")
            dist.all_reduce(total)
        q = measure(net, data, c["batch"], rank, world, device)
        history.append({"train_loss": total.item() / (n * len(heads)), "heldout_loss": q[0], "top1": q[1], "top5": q[2]})
        say(f"epoch {epoch + 1} of {c['epochs']}: {history[-1]}, {done / (time.time() - start):.0f} tokens/s")
        if a.state and rank == 0:
            torch.save({"config": c, "net": net.state_dict(), "opt": opt.state_dict(), "epoch": epoch + 1, "step": step, "history": history}, a.state + ".partial")
            os.replace(a.state + ".partial", a.state)
    if rank == 0:
        write_tensors(a.out, net.tensors(c["names"]), {"neuroprefetcher.predictor": str(VERSION), "data": c["data"]})
        print(json.dumps({"out": a.out, "processes": world, "epochs": c["epochs"], **(history[-1] if history else {})}))
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
