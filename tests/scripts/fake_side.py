#!/usr/bin/env python3
"""Stands in for stepc, the opponent and nvidia-smi in tests of the paired benchmark: it writes what they would write,
takes the time that they would take (scaled down), and fails where FAKE_FAIL names it.

Called as stepc: first word `train`. As nvidia-smi: a --query-gpu. Else as the opponent."""

import json
import os
import sys
import time

PLANNED = os.environ.get("FAKE_FAIL", "")  # words: stepc, pytorch, memory, hang, silent
STEP_S = 0.004


def option(words, name, default=None):
    return words[words.index(name) + 1] if name in words else default


def settings_of(words):
    return dict(words[i + 1].split("=", 1) for i, w in enumerate(words) if w == "--set")


def trouble(side):
    if side in PLANNED.split():
        print("something above", file=sys.stderr)
        sys.exit(f"{side} gave up")
    if f"{side}-hang" in PLANNED.split():
        time.sleep(60)
    if f"{side}-silent" in PLANNED.split():
        sys.exit(0)


def stepc(words):
    trouble("stepc")
    settings = settings_of(words)
    run = option(words, "--run")
    os.makedirs(run)
    steps, equal = int(settings["steps"]), settings["routing"] == "equal"
    begun = time.perf_counter()
    with open(os.path.join(run, "metrics.jsonl"), "w", buffering=1) as file:
        for step in range(1, steps + 1):
            time.sleep(0.03 if step == 1 else STEP_S)
            line = {"step": step, "loss": 11 - step / 100, "tokens": step * int(settings["batch"]) * 8,
                    "seconds": time.perf_counter() - begun, "kept_share": [1.0, 1.0] if equal else [0.25, 0.75]}
            file.write(json.dumps(line) + "\n")


def pytorch(words):
    trouble("pytorch")
    steps, warmup = int(option(words, "--steps")), int(option(words, "--warmup"))
    row = {"batch": int(option(words, "--batch")), "seq": 8, "torch": "9.9", "cudnn": 1, "mfu": 0.5,
           "peak_bytes": 2**31, "attention_ran": ["flash"], "losses": [11.001 - i / 100 for i in range(1, steps + 1)],
           "kept_mean": 1.0 if option(words, "--routing") == "equal" else 0.5}
    if "memory" in PLANNED.split():
        row = {"error": "out of memory", "detail": "tried"}
    else:
        time.sleep(STEP_S)
        first, begun, begun_unix = time.time(), time.perf_counter(), time.time()
        ends = []
        for _ in range(steps - warmup):
            time.sleep(2 * STEP_S)
            ends.append(time.perf_counter())
        step_ms = [(b - a) * 1e3 for a, b in zip([begun, *ends], ends)]
        row.update(step_ms=step_ms, timed_s=ends[-1] - begun, timed_unix=[begun_unix, time.time()], first_step_s=0.01,
                   first_step_unix=first)
    with open(option(words, "--json"), "a") as file:
        file.write(json.dumps(row) + "\n")


def smi(words):
    query = next(w for w in words if w.startswith("--query-gpu="))
    if "driver_version" in query:
        print("Card X, 1.2.3, 700.00 W, 1024 MiB")
        return
    while True:
        print("1500, 2600, 690.5, [N/A], 512", flush=True)
        time.sleep(0.01)


def main():
    words = sys.argv[1:]
    if words[0] == "train":
        stepc(words)
    elif any(w.startswith("--query-gpu=") for w in words):
        smi(words)
    else:
        pytorch(words)


if __name__ == "__main__":
    main()
