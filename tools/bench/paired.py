#!/usr/bin/env python3
"""stepc beside PyTorch on one card, in turns: the same model, shard, windows, policy and number of steps.

A round runs every side once, each in a process of its own, in an order that turns with each round; its rows are
appended to a JSONL file at once, so that rounds of several visits add up. Two modes, both sides alike: equal loads,
where every expert slot is filled (the headline), and the router's own choices.

  paired.py --data english-train.tok --rows rounds.jsonl --rounds 3 --tier default --tier max-autotune:4
  paired.py --report rounds.jsonl --out bench/results/h200_paired
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import gpu_samples
import paired_report
from paired_sides import (MODES, BadArgument, parse_tier, parse_variant, stepc_command, stepc_row, torch_command,
                          torch_row, variants_of)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--report", metavar="ROWS", help="no run: medians, spread and ratios of these rows")
    add("--out", help="where the report goes: OUT.md and OUT.json (without it: standard output)")
    add("--data", help="a TOK1 shard; both sides read its windows in order")
    add("--rows", help="JSONL file that rows are appended to")
    add("--rounds", type=int, default=1)
    add("--mode", action="append", choices=MODES, help="repeatable; both without it")
    add("--tier", action="append", default=[], metavar="NAME[+flash][+fp32][:EVERY]",
        help="an opponent (repeatable); :4 is every fourth round")
    add("--stepc-set", action="append", default=[], metavar="LABEL[@MODE]:KEY=VALUE,..",
        help="a form of stepc with further settings or --flags (repeatable); without it one, called stepc")
    add("--preset", default="moe-4b")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a number of the preset, for both sides")
    add("--batch", type=int, default=16)
    add("--steps", type=int, default=32, help="of a process, with the warm-up")
    add("--warmup", type=int, default=8)
    add("--gpu", type=int, default=0)
    add("--device", help="stepc's device (default: cuda:0 of what is visible, which is --gpu)")
    add("--cache", help="keep inductor's code here, so that later rounds start warm")
    add("--stop-after", type=float, default=0, metavar="SECONDS", help="begin no round that would end later than this")
    add("--limit", type=float, default=1200, metavar="SECONDS", help="of one process")
    add("--stepc", default=os.path.join(ROOT, "build", "release", "stepc"))
    add("--python", default="python3", help="that has torch")
    add("--baseline", default=os.path.join(ROOT, "tools", "baseline", "pytorch_baseline.py"))
    add("--smi", default="nvidia-smi")
    add("--dry-run", action="store_true", help="print the commands of the next round")
    options = parser.parse_args(arguments)
    try:
        check(options)
    except BadArgument as error:
        parser.error(str(error))
    return options


def check(options):
    if options.report:
        if not os.path.isfile(options.report):
            raise BadArgument(f"--report {options.report}: no such file")
        return
    for name in ("data", "rows"):
        if not getattr(options, name):
            raise BadArgument(f"--{name} is needed")
    if not os.path.isfile(options.data):
        raise BadArgument(f"--data {options.data}: no such file")
    if not os.path.isdir(os.path.dirname(os.path.abspath(options.rows))):
        raise BadArgument(f"--rows {options.rows}: no such folder")
    if not os.access(options.stepc, os.X_OK):
        raise BadArgument(f"--stepc {options.stepc}: no such program; build it, or name another")
    if options.rounds < 1 or options.batch < 1:
        raise BadArgument("--rounds and --batch: expected at least 1")
    if options.warmup < 1 or options.steps - options.warmup < 2:
        raise BadArgument(f"--steps {options.steps} --warmup {options.warmup}: expected a warm-up and at least 2 more")
    options.tiers = [parse_tier(text) for text in options.tier or ["default"]]
    options.variants = [parse_variant(text) for text in options.stepc_set]
    options.modes = list(dict.fromkeys(options.mode or MODES))
    options.device = options.device or "cuda:0"
    for mode in options.modes:
        labels = [v.label for v in variants_of(options.variants, mode)] + [t.label for t in options.tiers]
        if len(set(labels)) != len(labels):
            raise BadArgument(f"two sides of mode {mode} have one label: {', '.join(labels)}")


# ---- a round ---------------------------------------------------------------------------------------------------------


def plan_round(options, number):
    """(mode, side, variant or tier) in the order they run. Within a mode a tier comes behind stepc and before it in
    turns, by how often it has been due: by the round's number, one of every second round would always come behind."""
    due = [t for t in options.tiers if t.is_due(number)]
    before = [("pytorch", t) for t in reversed(due) if number // t.every % 2 == 1]
    behind = [("pytorch", t) for t in due if number // t.every % 2 == 0]
    planned = []
    for mode in options.modes:
        ours = [("stepc", v) for v in variants_of(options.variants, mode)]
        sides = before + (ours if number % 2 == 0 else ours[::-1]) + behind
        planned += [(mode, side, what) for side, what in sides]
    return planned


def command_of(options, mode, side, what, folder):
    return (stepc_command if side == "stepc" else torch_command)(options, what, mode, folder)


def run_limited(command, options, folder):
    """Exit status and the last line of its errors; ended together with what it started at the limit or by Ctrl-C."""
    # Numbers of cards as nvidia-smi has them.
    environment = dict(os.environ, CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES=str(options.gpu))
    with open(os.path.join(folder, "stdout"), "w") as out, open(os.path.join(folder, "stderr"), "w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            status = process.wait(timeout=options.limit)
        except subprocess.TimeoutExpired:
            end_group(process)
            return None, f"still running after {options.limit:.0f} s"
        except KeyboardInterrupt:
            end_group(process)
            raise
        err.seek(0)
        lines = [line.strip() for line in err if line.strip()]
    return status, lines[-1] if lines else ""


def end_group(process):
    for number, patience in ((signal.SIGINT, 10), (signal.SIGKILL, 30)):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            process.wait()
            return


def measure(options, mode, side, what):
    """One process: what it measured, or an error. Files it makes are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="paired-") as folder:
        sampler = gpu_samples.Sampler(options.smi, options.gpu).start()
        started = time.time()
        try:
            status, last = run_limited(command_of(options, mode, side, what, folder), options, folder)
            took = time.time() - started
        except OSError as error:
            return {"error": f"cannot start: {error}", "process_s": 0.0}
        finally:
            sampler.stop()
        if status != 0:
            return {"error": last or f"exit code {status}", "exit_code": status, "process_s": took}
        try:
            row = (stepc_row(folder, options.warmup, options.steps, started) if side == "stepc"
                   else torch_row(folder, started))
        except (OSError, ValueError, KeyError, IndexError) as error:
            return {"error": f"left no result: {type(error).__name__}: {error}", "process_s": took}
        if "error" not in row:
            row["gpu"] = gpu_samples.summary(sampler.samples, *row["timed_unix"])
        return {**row, "process_s": took}


def stepc_build(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:12]


def describe(options):
    """What every row of a visit has in common."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    return {"visit": f"{now}-{os.getpid()}", "host_cores": os.cpu_count(),
            **gpu_samples.card_of(options.smi, options.gpu), "preset": options.preset, "set": sorted(options.set),
            "batch": options.batch, "steps": options.steps, "warmup": options.warmup,
            "data": os.path.basename(options.data), "stepc_build": stepc_build(options.stepc)}


def side_fields(side, what):
    if side == "stepc":
        return {"settings": list(what.settings)}
    return {"tier": what.name, "attention": what.attention, "masters": what.masters}


def append(path, row):
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def short(row):
    if "error" in row:
        return f"FAILED: {row['error']}"
    power = row.get("gpu", {}).get("power_w")
    return (f"{row['tokens_per_s']:.0f} tokens/s, {row['median_ms']:.1f} ms a step"
            + (f", {row['gpu']['sm_mhz']:.0f} MHz, {power:.0f} W" if power else "") + f" ({row['process_s']:.0f} s)")


# ---- rounds ----------------------------------------------------------------------------------------------------------


def earlier_rows(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def seconds_expected(planned, rows):
    """Of a round, from the latest row of each side; sides never seen count nothing."""
    latest = {(r["mode"], r["side"], r["label"]): r.get("process_s", 0.0) for r in rows}
    return sum(latest.get((mode, side, what.label), 0.0) for mode, side, what in planned)


def run_round(options, common, number, rows):
    """Adds the round's rows; the number of failures."""
    failed = 0
    for place, (mode, side, what) in enumerate(plan_round(options, number)):
        row = {**common, "round": number, "place": place, "mode": mode, "side": side, "label": what.label,
               "date": time.strftime("%Y-%m-%d", time.gmtime()), **side_fields(side, what)}
        try:
            row.update(measure(options, mode, side, what))
        except KeyboardInterrupt:
            row["error"] = "interrupted"
            raise
        finally:
            if "error" in row or "tokens_per_s" in row:
                append(options.rows, row)
                rows.append(row)
        failed += "error" in row and row["error"] != "out of memory"
        print(f"round {number}, {mode}, {side} {what.label}: {short(row)}", flush=True)
    return failed


def run_rounds(options):
    rows = earlier_rows(options.rows)
    first = 1 + max((r["round"] for r in rows), default=-1)
    if options.dry_run:
        for mode, side, what in plan_round(options, first):
            print(" ".join(command_of(options, mode, side, what, "FOLDER")))
        return 0
    common = describe(options)
    began, failed = time.time(), 0
    for number in range(first, first + options.rounds):
        expected = seconds_expected(plan_round(options, number), rows)
        if options.stop_after and time.time() - began + expected > options.stop_after:
            print(f"round {number} would take {expected:.0f} s more: left for another visit")
            break
        failed += run_round(options, common, number, rows)
    return 1 if failed else 0


def main():
    options = parse_arguments()
    if options.report:
        return paired_report.write(earlier_rows(options.report), options.out)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` too lets the rows be kept
    try:
        return run_rounds(options)
    except KeyboardInterrupt:
        print(f"interrupted; rows so far are in {options.rows}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
