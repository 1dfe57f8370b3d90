#!/usr/bin/env python3
"""Measures nprun beside llama.cpp on the same float16 weights, one run after the other, and prints the table.

  offload   random weights in the shape of a model, bigger than a memory control group: nprun sparse, nprun stream and
            llama.cpp with its file mapped
  resident  a bundle that fits: decode and prefill, on the same number of threads
  check     greedy tokens of both sides on a bundle

All that make bench-peers asks for runs in this order: check, resident, offload. README.md says what the numbers mean.
Exit codes: 0 done, 1 a run failed, 2 usage.
"""

import argparse
import json
import os
import platform
import re
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

import cgroup

HERE = os.path.dirname(os.path.abspath(__file__))
SENTENCE = "The history of the region begins with the river, and with the people who came to live beside it. "
SIDES = ("sparse", "stream", "llama")
UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "KIB": 1 << 10, "M": 10**6, "MB": 10**6, "MIB": 1 << 20, "G": 10**9, "GB": 10**9, "GIB": 1 << 30}


class Failed(Exception):
    """args: what, hint."""


def size(text):
    m = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]*)", text.strip())
    if not m or m[2].upper() not in UNITS or m[1].count(".") > 1 or float(m[1]) <= 0:
        raise argparse.ArgumentTypeError("%r is no size such as 9GiB" % text)
    return int(float(m[1]) * UNITS[m[2].upper()])


def per_side(text):
    """sparse=32,stream=4,llama=3 or one number for all."""
    try:
        if "=" not in text:
            return {s: int(text) for s in SIDES}
        got = {k: int(v) for k, v in (part.split("=") for part in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError("%r is no number and no list such as sparse=32,stream=4,llama=3" % text)
    if set(got) != set(SIDES) or min(got.values()) < 0:
        raise argparse.ArgumentTypeError("%r: want a number of each of %s" % (text, ", ".join(SIDES)))
    return got


def human(n):
    if n is None or n < 0:
        return "?"
    for unit, of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= of:
            return "%.3g %s" % (n / of, unit) if n / of < 1000 else "%.0f %s" % (n / of, unit)
    return "%d B" % n


def seconds(s):
    return "%.3g s" % s if s >= 1 else "%.3g ms" % (s * 1e3)


def say(text):
    print(text, file=sys.stderr, flush=True)


def drop_cache(*paths):
    """Makes the kernel forget the pages of files, so that a run reads and is charged for what it uses."""
    for path in paths:
        files = [os.path.join(path, n) for n in os.listdir(path)] if os.path.isdir(path) else [path]
        for name in files:
            with open(name, "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Runner:
    def __init__(self, a):
        self.a = a
        self.logs = os.path.join(a.work, "logs")
        os.makedirs(self.logs, exist_ok=True)

    def run(self, argv, stdin="", group=None, what="", env=()):
        """Runs a command to its end and returns its stdout; the group, if any, holds it and all it does."""
        log = os.path.join(self.logs, (what or os.path.basename(argv[0])).replace("/", "-").replace(" ", "-") + ".log")
        with open(log, "w+b") as err:
            child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, preexec_fn=group.enter if group else None,
                                     env=dict(os.environ, **dict(e.split("=", 1) for e in env)))
            try:
                out, _ = child.communicate(stdin.encode())
            except BaseException:
                child.kill()
                child.wait()
                raise
            if child.returncode != 0:
                err.seek(0)
                tail = err.read().decode(errors="replace").strip().splitlines()[-6:]
                if group and group.killed():
                    tail.append("the control group's limit left it no memory: it was killed")
                raise Failed("%s: %s\n  %s" % (shlex.join(argv), ended(child.returncode), "\n  ".join(tail)), "its stderr is in " + log)
        return out.decode()

    def nprun(self, *args, **kw):
        return json.loads(self.run([self.a.nprun, *args, "--json"], **kw))

    def llama(self, job, **kw):
        job = dict({"threads": self.a.threads, "warmup": 0}, **job)
        return json.loads(self.run([self.a.python, os.path.join(HERE, "llama_side.py")], stdin=json.dumps(job), env=self.a.llama_env, **kw))

    def export(self, bundle, name):
        path = os.path.join(self.a.work, name + ".gguf")
        say("%s: the bundle's weights as GGUF" % path)
        self.run([self.a.npprep, "export", "-b", bundle, "--out", path, "--quiet"], what="export " + name)
        return path

    def grouped(self, limit, f):
        """Calls f with a new group and adds to its report what the group saw."""
        g = cgroup.Group(limit)
        done, most = threading.Event(), [0]
        def watch():
            while not done.wait(0.25):
                most[0] = max(most[0], g.anonymous() or 0)
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            r = f(g)
            r["cgroup_peak_bytes"], r["cgroup_version"], r["cgroup_limit_bytes"], r["cgroup_peak_anonymous_bytes"] = g.peak(), g.version, limit, most[0]
            return r
        finally:
            done.set()
            watcher.join()
            g.close()


def ended(code):
    return "killed by signal %d (%s)" % (-code, signal.Signals(-code).name) if code < 0 else "exit code %d" % code


def same_tokens(a, b):
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


def check(r, bundle, n):
    """Greedy tokens of both sides after the same prompts."""
    gguf = r.export(bundle, name_of(bundle))
    got = []
    for prompt in r.a.check_prompt:
        ours = r.nprun("generate", "-b", bundle, "--mode", "resident", "--threads", str(r.a.threads), "--context", str(n + 64), "--prompt", prompt,
                       "--max-tokens", str(n), "--ignore-eos", what="check nprun")
        theirs = r.llama({"model": gguf, "ids": ours["prompt_ids"], "tokens": n - 1, "last": True}, what="check llama.cpp")
        got.append({"prompt": prompt, "same": same_tokens(ours["ids"], theirs["ids"]), "of": n, "ours": ours["ids"], "theirs": theirs["ids"]})
    return {"bundle": bundle, "gguf": gguf, "prompts": got}


def name_of(bundle):
    """build/smollm2-135m/bundle-dense → smollm2-135m-bundle-dense."""
    return "-".join(os.path.abspath(bundle).split(os.sep)[-2:])


def resident(r, bundle):
    """Decode and prefill of a model that fits, in pairs."""
    a = r.a
    gguf = r.export(bundle, name_of(bundle))
    one = len(r.nprun("tokenize", "-b", bundle, "--text", "-", stdin=SENTENCE * 8)["ids"]) / 8
    text = SENTENCE * max(1, round(a.resident_prompt / one))
    ids = r.nprun("tokenize", "-b", bundle, "--text", "-", stdin=text)["ids"]
    warm, tokens = 8, a.resident_tokens
    rounds = []
    for i in range(a.resident_rounds):
        def ours():
            x = r.nprun("bench", "-b", bundle, "--mode", "resident", "--threads", str(a.threads), "--context", str(len(ids) + warm + tokens + 8), "--prompt", "-",
                        "--warmup", str(warm), "--max-tokens", str(tokens), stdin=text, what="resident nprun")
            if x["prompt_tokens"] != len(ids):
                raise Failed("nprun took %d prompt tokens, llama.cpp would take %d" % (x["prompt_tokens"], len(ids)), "")
            return x
        def theirs():
            return r.llama({"model": gguf, "ids": ids, "warmup": warm, "tokens": tokens, "rehearse": True}, what="resident llama.cpp")
        got = in_turn(i, {"nprun": ours, "llama": theirs})
        for s, x in got.items():
            x["prefill_tok_per_s"] = x["prompt_tokens"] / x["prompt_s"]
        rounds.append(got)
        say("%s, round %d of %d: decode nprun %.1f, llama.cpp %.1f tok/s; prefill %.0f, %.0f" % (name_of(bundle), i + 1, a.resident_rounds,
            got["nprun"]["tok_per_s"], got["llama"]["tok_per_s"], got["nprun"]["prefill_tok_per_s"], got["llama"]["prefill_tok_per_s"]))
    return {"bundle": bundle, "gguf": gguf, "threads": a.threads, "prompt_tokens": len(ids), "tokens": tokens, "rounds": rounds}


def in_turn(i, sides):
    """Runs the sides, every other time from the last to the first, so that a drift of the machine favours none."""
    order = list(sides)
    if i % 2:
        order.reverse()
    return {s: sides[s]() for s in order}


def synthetic(r, shape, directory):
    """Makes sure that the random weights are there, outside every group."""
    path = os.path.join(directory, shape)
    try:
        with open(os.path.join(path, "manifest.json")) as f:
            params = json.load(f).get("params", {})
    except OSError:
        params = {}
    if params.get("synthetic") != shape or params.get("seed") != str(r.a.seed):
        say("%s: random weights, written once" % path)
        r.nprun("bench", "--synthetic", shape, "--dir", directory, "--seed", str(r.a.seed), "--mode", "stream", "--dense-layers", "1", "--context", "64",
                "--prompt", "a", "--warmup", "0", "--max-tokens", "1", what="write " + shape)
    return path


def budget(limit):
    """--memory in a group: the limit less what the kernel charges for page tables and the reading of the bundle's small files."""
    return limit - (32 << 20) - limit // 100


def offload(r, shape, limits):
    a = r.a
    directory = os.path.join(a.work, "synthetic")
    os.makedirs(directory, exist_ok=True)
    bundle = synthetic(r, shape, directory)
    gguf = r.export(bundle, shape)
    prompt = "The history of the region"
    ids = r.nprun("tokenize", "-b", bundle, "--text", "-", stdin=prompt)["ids"]
    result = []
    for limit in limits:
        memory = a.memory or budget(limit)
        rounds = []
        for i in range(a.rounds):
            def ours(mode):
                def f():
                    drop_cache(bundle, gguf)
                    n, warm = a.tokens[mode], a.warmup[mode]
                    more = shlex.split(a.sparse_args if mode == "sparse" else a.stream_args)
                    return r.grouped(limit, lambda g: r.nprun(
                        "bench", "--synthetic", shape, "--dir", directory, "--seed", str(a.seed), "--reuse", str(a.reuse), *(["--k-max", str(a.k_max)] if a.k_max else []),
                        "--mode", mode, "--memory", str(memory), "--threads", str(a.threads), "--context", str(max(64, len(ids) + warm + n + 8)), "--prompt", prompt,
                        "--warmup", str(warm), "--max-tokens", str(n), "--drive", "--spell", str(a.spell), *more, group=g, what="%s %s" % (shape, mode)))
                return f
            def theirs():
                drop_cache(bundle, gguf)
                return r.grouped(limit, lambda g: r.llama({"model": gguf, "ids": ids, "warmup": a.warmup["llama"], "tokens": a.tokens["llama"]}, group=g, what=shape + " llama.cpp"))
            sides = {"sparse": ours("sparse"), "stream": ours("stream"), "llama": theirs}
            got = in_turn(i, {s: f for s, f in sides.items() if s in a.sides})
            rounds.append(got)
            say("%s in %s, round %d of %d: %s" % (shape, human(limit), i + 1, a.rounds, ", ".join("%s %.3g tok/s" % (s, got[s]["tok_per_s"]) for s in SIDES if s in got)))
        result.append({"shape": shape, "limit_bytes": limit, "memory_bytes": memory, "threads": a.threads, "prompt_tokens": len(ids), "bundle": bundle, "gguf": gguf,
                       "gguf_bytes": os.path.getsize(gguf), "rounds": rounds})
        result[-1]["bound"] = {m: bound(result[-1], m) for m in ("sparse", "stream") if m in a.sides}
    return result


# What is printed.

def median(rounds, side, f):
    got = [f(x[side]) for x in rounds]
    return statistics.median(got) if None not in got else None


def spread(values):
    return "%.3g (%.3g–%.3g)" % (statistics.median(values), min(values), max(values))


def ratios(rounds, top, bottom, f):
    return [f(x[top]) / f(x[bottom]) for x in rounds]


def table(rows):
    width = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, width))).rstrip() for row in rows)


NAMES = {"sparse": "nprun sparse", "stream": "nprun stream", "llama": "llama.cpp, mapped", "nprun": "nprun resident"}


def storage(x):
    """What the kernel counted for the process."""
    return x["process"]["storage_read_bytes"] if "process" in x else x["storage_read_bytes"]


def faults(x):
    return x["process"]["major_faults"] if "process" in x else x["major_faults"]


def speed(x):
    return x["tok_per_s"]


def bound(o, side):
    """What a token of a side cannot be faster than, by the best that drive and memory gave in any round: a moment's stall of a shared drive is no bound."""
    rounds = o["rounds"]
    runs = [x[side] for x in rounds]
    b = {k: runs[0][k] for k in ("d", "k_max", "reuse")}
    b["read_bytes"] = statistics.median(storage(x) / x["tokens"] for x in runs)
    b["touched_bytes"] = runs[0]["touched_bytes_per_token"]
    b["drive"] = max(x["bound"]["drive_bytes_per_s"] for x in runs)
    b["memory"] = max(y["bound"]["memory_bytes_per_s"] for x in rounds for s, y in x.items() if s != "llama")
    b["read_s"], b["touch_s"] = b["read_bytes"] / b["drive"] if b["read_bytes"] else 0, b["touched_bytes"] / b["memory"]
    b["times"] = [1 / x["tok_per_s"] / max(b["read_s"], b["touch_s"]) for x in runs]
    return b


def print_offload(o):
    rounds, limit, memory = o["rounds"], o["limit_bytes"], o["memory_bytes"]
    version = next(iter(rounds[0].values()))["cgroup_version"]
    print("\n%s, random float16 weights, %s on disk; memory control group (version %d) of %s, nprun --memory %s; %d threads; medians of %d rounds" % (
        o["shape"], human(o["gguf_bytes"]), version, human(limit), human(memory), o["threads"], len(rounds)))
    rows = [["side", "tok/s (least–most)", "tokens", "read per token", "major faults per token", "peak of the group", "of it no cache", "peak RSS", "RSS / --memory"]]
    for s in SIDES:
        if s not in rounds[0]:
            continue
        def med(f):
            return median(rounds, s, f)
        rss = med(lambda x: x["peak_rss_bytes"])
        rows.append([NAMES[s], spread([x[s]["tok_per_s"] for x in rounds]), "%d" % rounds[0][s]["tokens"], human(med(lambda x: storage(x) / x["tokens"])),
                     "%.4g" % med(lambda x: faults(x) / x["tokens"]), human(med(lambda x: x["cgroup_peak_bytes"])),
                     human(med(lambda x: x["cgroup_peak_anonymous_bytes"])), human(rss),
                     "%.3f" % (rss / memory) if s != "llama" else ""])
    print(table(rows))
    for s in ("sparse", "stream"):
        if s not in rounds[0]:
            continue
        b = o["bound"][s]
        print("%s: d = %d%s; bound: drive %s at %s/s = %s, memory %s at %s/s = %s; a token takes %s times the longer" % (
            s, b["d"], ", K_max = %d, reuse %.3f" % (b["k_max"], b["reuse"]) if s == "sparse" else "",
            human(b["read_bytes"]), human(b["drive"]), seconds(b["read_s"]), human(b["touched_bytes"]), human(b["memory"]), seconds(b["touch_s"]), spread(b["times"])))
    for top, bottom in (("sparse", "llama"), ("stream", "llama"), ("sparse", "stream")):
        if top in rounds[0] and bottom in rounds[0]:
            print("%s / %s: %s" % (NAMES[top], NAMES[bottom], spread(ratios(rounds, top, bottom, speed))))


def print_resident(o):
    rounds = o["rounds"]
    print("\n%s, the same float16 weights; %d threads; %d tokens after a prompt of %d; medians of %d pairs" % (o["bundle"], o["threads"], o["tokens"], o["prompt_tokens"], len(rounds)))
    rows = [["side", "decode tok/s (least–most)", "prefill tok/s (least–most)", "peak RSS"]]
    for s in ("nprun", "llama"):
        rows.append([NAMES[s], spread([x[s]["tok_per_s"] for x in rounds]), spread([x[s]["prefill_tok_per_s"] for x in rounds]), human(median(rounds, s, lambda x: x["peak_rss_bytes"]))])
    print(table(rows))
    print("nprun / llama.cpp: decode %s, prefill %s" % (spread(ratios(rounds, "nprun", "llama", speed)), spread(ratios(rounds, "nprun", "llama", lambda x: x["prefill_tok_per_s"]))))


def print_check(c):
    for p in c["prompts"]:
        print("same greedy tokens: %d of %d (%s, after %r)" % (p["same"], p["of"], c["bundle"], p["prompt"]))


def machine():
    cpu = platform.processor()
    try:
        with open("/proc/cpuinfo") as f:
            cpu = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), cpu)
    except OSError:
        pass
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", default="build/peers", help="folder for weights and logs (%(default)s)")
    p.add_argument("--nprun", default="bin/nprun")
    p.add_argument("--npprep", default="bin/npprep")
    p.add_argument("--python", default=sys.executable, help="interpreter that has llama_cpp (the one that runs this)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of both sides (%(default)s)")
    p.add_argument("--llama-env", action="append", default=[], metavar="NAME=VALUE", help="for llama.cpp, such as OMP_WAIT_POLICY=passive on a machine that others use")
    p.add_argument("--json", action="store_true", help="one JSON document instead of the tables, every run in it")
    p.add_argument("--check", action="append", default=[], metavar="BUNDLE", help="compare greedy tokens; may be given more than once")
    p.add_argument("--check-tokens", type=int, default=32)
    p.add_argument("--check-prompt", action="append", help="may be given more than once")
    p.add_argument("--resident", action="append", default=[], metavar="BUNDLE", help="compare a model that fits; may be given more than once")
    p.add_argument("--resident-rounds", type=int, default=5, help="pairs (%(default)s)")
    p.add_argument("--resident-prompt", type=int, default=512, help="about so many prompt tokens (%(default)s)")
    p.add_argument("--resident-tokens", type=int, default=128, help="decoded (%(default)s)")
    p.add_argument("--shape", action="append", default=[], help="compare random weights that do not fit: a shape of nprun bench --synthetic")
    p.add_argument("--limit", action="append", type=size, default=[], metavar="SIZE", help="of the memory control group; may be given more than once")
    p.add_argument("--memory", type=size, help="nprun's --memory (the limit less 1 %% and 32 MiB)")
    p.add_argument("--rounds", type=int, default=5, help="of all sides (%(default)s)")
    p.add_argument("--sides", type=lambda s: s.split(","), default=list(SIDES), help="of sparse,stream,llama (all)")
    p.add_argument("--tokens", type=per_side, default=per_side("sparse=32,stream=4,llama=3"), metavar="N", help="measured, of each side: 8 or sparse=32,stream=4,llama=3")
    p.add_argument("--warmup", type=per_side, default=per_side("sparse=8,stream=1,llama=1"), metavar="N", help="tokens before, in the same way")
    p.add_argument("--k-max", type=int, help="the shape's")
    p.add_argument("--reuse", type=float, default=0.83, help="of the replayed active sets (%(default)s)")
    p.add_argument("--seed", type=int, default=1, help="of the weights (%(default)s)")
    p.add_argument("--spell", type=int, default=40, metavar="MS", help="per point of the drive's curve, measured in every nprun run (%(default)s)")
    p.add_argument("--sparse-args", default="", metavar="ARGS", help="more for nprun's sparse runs, such as '--dense-layers 10'")
    p.add_argument("--stream-args", default="", metavar="ARGS")
    a = p.parse_args()
    a.check_prompt = a.check_prompt or ["The history of the region"]
    if not (a.check or a.resident or a.shape):
        p.error("nothing to do: give --check, --resident or --shape")
    if not all("=" in e for e in a.llama_env):
        p.error("--llama-env NAME=VALUE")
    if a.shape and not a.limit:
        p.error("--shape needs --limit")
    if not set(a.sides) <= set(SIDES) or min(a.rounds, a.resident_rounds, a.threads, a.check_tokens, a.resident_tokens, *a.tokens.values()) < 1:
        p.error("--sides are of %s; rounds, threads and tokens at least 1" % ", ".join(SIDES))
    return a


def main():
    a = arguments()
    result = {"machine": machine(), "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "check": [], "resident": [], "offload": []}
    try:
        if a.shape:
            cgroup.Group(a.limit[0]).close()  # refused now rather than after the first hour
        r = Runner(a)
        m = result["machine"]
        if not a.json:
            print("%s, %d processors, %s, kernel %s" % (m["cpu"], m["cores"], human(m["memory_bytes"]), m["kernel"]))
        for kind, things, f, show in (("check", a.check, lambda b: [check(r, b, a.check_tokens)], print_check), ("resident", a.resident, lambda b: [resident(r, b)], print_resident),
                                      ("offload", a.shape, lambda s: offload(r, s, a.limit), print_offload)):
            for x in things:
                got = f(x)
                result[kind] += got
                if not a.json:
                    for o in got:
                        show(o)
                    sys.stdout.flush()
        if a.json:
            json.dump(result, sys.stdout, indent=1)
            print()
    except (Failed, cgroup.Refused) as e:
        say("peers: error: " + e.args[0])
        if e.args[1]:
            say("peers: hint: " + e.args[1])
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
