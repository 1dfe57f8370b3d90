"""llama.cpp's side: runs in the virtual environment as a child of peers.py, reads a job on stdin, prints a report, both JSON.

The C API is called as it is, token by token, so that Python's share of a token is some microseconds. Counters are the
kernel's for this process over the measured tokens alone.
"""

import ctypes
import importlib.metadata
import json
import os
import resource
import sys
import time

import llama_cpp as ll


def counters():
    read = -1
    with open("/proc/self/io") as f:
        for line in f:
            if line.startswith("read_bytes:"):
                read = int(line.split()[1])
    return read, resource.getrusage(resource.RUSAGE_SELF).ru_majflt


def peak_rss():
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024


@ll.llama_log_callback
def errors_only(level, text, _):
    if level in (3, 4):  # warnings and errors
        sys.stderr.write(text.decode(errors="replace"))


def main():
    job = json.load(sys.stdin)
    # What the library says goes to stderr, the report to the real stdout.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    ll.llama_log_set(errors_only, None)
    ll.llama_backend_init()

    start = time.monotonic()
    mp = ll.llama_model_default_params()
    mp.load_mode = ll.LLAMA_LOAD_MODE_MMAP
    mp.n_gpu_layers = 0
    model = ll.llama_model_load_from_file(job["model"].encode(), mp)
    if not model:
        sys.exit("llama.cpp does not take %s" % job["model"])
    ids, warm, tokens = job["ids"], job["warmup"], job["tokens"]
    cp = ll.llama_context_default_params()
    cp.n_ctx = len(ids) + warm + tokens + 1
    cp.n_batch = max(512, len(ids))
    cp.n_threads = cp.n_threads_batch = job["threads"]
    cp.no_perf = True
    ctx = ll.llama_init_from_model(model, cp)
    if not ctx:
        sys.exit("llama.cpp makes no context of %d tokens" % cp.n_ctx)
    greedy = ll.llama_sampler_init_greedy()
    load = time.monotonic() - start

    def decode(tokens):
        buf = (ll.llama_token * len(tokens))(*tokens)
        if ll.llama_decode(ctx, ll.llama_batch_get_one(buf, len(tokens))) != 0:
            sys.exit("llama_decode failed")
        ll.llama_synchronize(ctx)

    if job.get("rehearse"):  # threads up, buffers touched: as its own benchmark does before it measures
        decode(ids)
        ll.llama_memory_clear(ll.llama_get_memory(ctx), True)

    before = counters()
    start = time.monotonic()
    decode(ids)
    prompt_time = time.monotonic() - start
    prompt_read = counters()[0] - before[0]

    took, made = [], []
    for i in range(warm + tokens):
        if i == warm:
            before = counters()
        made.append(ll.llama_sampler_sample(greedy, ctx, -1))
        start = time.monotonic()
        decode(made[-1:])
        if i >= warm:
            took.append(time.monotonic() - start)
    after = counters()
    if job.get("last"):  # the token after the last step, as a generation would give
        made.append(ll.llama_sampler_sample(greedy, ctx, -1))
    json.dump({
        "version": importlib.metadata.version("llama-cpp-python"), "system": ll.llama_print_system_info().decode(),
        "load_s": load, "prompt_tokens": len(ids), "prompt_s": prompt_time, "prompt_read_bytes": prompt_read,
        "tokens": tokens, "tok_per_s": tokens / sum(took) if took else 0, "latency_s": took, "ids": made,
        "storage_read_bytes": after[0] - before[0], "major_faults": after[1] - before[1], "peak_rss_bytes": peak_rss(),
    }, out)


main()
