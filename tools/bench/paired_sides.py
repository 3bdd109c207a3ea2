"""The two sides of the paired benchmark: their command lines, and a row of what a finished process left behind."""

import json
import os
import statistics
from dataclasses import dataclass

TIERS = ("eager", "default", "reduce-overhead", "max-autotune")
MODES = ("equal", "own")


class BadArgument(Exception):
    """A user's mistake, in one sentence."""


@dataclass(frozen=True)
class Tier:
    """One opponent: default, default+flash, max-autotune+fp32:4 (every fourth round)."""

    label: str
    name: str
    attention: str = "cudnn"
    masters: str = "bf16"
    every: int = 1

    def is_due(self, round_number):
        return round_number % self.every == 0


@dataclass(frozen=True)
class Variant:
    """One form of stepc: settings and --flags beside those of the benchmark; of one mode, or of all (None)."""

    label: str
    settings: tuple = ()
    mode: str = None


def parse_tier(text):
    label, colon, every = text.partition(":")
    if colon and not (every.isdigit() and int(every) > 0):
        raise BadArgument(f"--tier {text}: expected a number of rounds behind the colon, found '{every}'")
    name, *extras = label.split("+")
    if name not in TIERS:
        raise BadArgument(f"--tier {text}: expected one of {', '.join(TIERS)}, found '{name}'")
    options = {}
    for extra in extras:
        if extra in ("flash", "cudnn"):
            options["attention"] = extra
        elif extra in ("fp32", "bf16"):
            options["masters"] = extra
        else:
            raise BadArgument(f"--tier {text}: expected +flash, +cudnn, +fp32 or +bf16, found '+{extra}'")
    return Tier(label, name, every=int(every) if colon else 1, **options)


def parse_variant(text):
    head, colon, settings = text.partition(":")
    label, at, mode = head.partition("@")
    if not colon or not label:
        raise BadArgument(f"--stepc-set {text}: expected LABEL:key=value,.. or LABEL@MODE:key=value,..")
    if at and mode not in MODES:
        raise BadArgument(f"--stepc-set {text}: expected @equal or @own, found '@{mode}'")
    pairs = tuple(s for s in settings.split(",") if s)
    for pair in pairs:
        if not pair.startswith("--") and (not pair.partition("=")[0] or "=" not in pair):
            raise BadArgument(f"--stepc-set {text}: expected key=value or --flag, found '{pair}'")
    return Variant(label, pairs, mode or None)


def variants_of(variants, mode):
    return [v for v in variants if v.mode in (None, mode)] or [Variant("stepc")]


# ---- commands --------------------------------------------------------------------------------------------------------


def stepc_command(options, variant, mode, folder):
    settings = [f"batch={options.batch}", f"routing={mode}", f"steps={options.steps}", *options.set]
    settings += [s for s in variant.settings if not s.startswith("--")]
    flags = [s for s in variant.settings if s.startswith("--")]
    return [options.stepc, "train", "--preset", options.preset, *[w for s in settings for w in ("--set", s)],
            "--device", options.device, "--data", options.data, "--sequential", "--no-checkpoint", "--fresh", "--json",
            "--run", os.path.join(folder, "run"), *flags]


def torch_command(options, tier, mode, folder):
    command = [options.python, options.baseline, "--preset", options.preset, "--shard", options.data, "--tier",
               tier.name, "--masters", tier.masters, "--attention", tier.attention, "--routing", mode, "--batch",
               str(options.batch), "--steps", str(options.steps), "--warmup", str(options.warmup), "--json",
               os.path.join(folder, "row.json")]
    command += [w for s in options.set for w in ("--set", s)]
    return command + (["--cache", options.cache] if options.cache else [])


# ---- rows ------------------------------------------------------------------------------------------------------------


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def times_row(step_ms, timed_s, tokens_per_step):
    quarters = statistics.quantiles(step_ms, n=4) if len(step_ms) > 1 else step_ms * 3
    return {"timed_steps": len(step_ms), "tokens_per_s": tokens_per_step * len(step_ms) / timed_s,
            "mean_ms": timed_s * 1e3 / len(step_ms), "median_ms": statistics.median(step_ms), "low_ms": quarters[0],
            "high_ms": quarters[2], "step_ms": step_ms}


def stepc_row(folder, warmup, steps, started_unix):
    """From the metrics of the run. Their seconds count from the first step's start; the file was last written at the
    last step's end, which puts them on the wall clock."""
    path = os.path.join(folder, "run", "metrics.jsonl")
    lines = [line for line in read_lines(path) if "loss" in line]
    if len(lines) != steps:
        raise ValueError(f"{path}: {len(lines)} steps, expected {steps}")
    ends = [line["seconds"] for line in lines]
    origin = os.stat(path).st_mtime - ends[-1]
    step_ms = [(b - a) * 1e3 for a, b in zip(ends[warmup - 1 :], ends[warmup:])]
    row = times_row(step_ms, ends[-1] - ends[warmup - 1], lines[0]["tokens"])
    row.update(losses=[line["loss"] for line in lines], first_step_s=ends[0],
               start_to_first_step_s=origin + ends[0] - started_unix,
               timed_unix=[origin + ends[warmup - 1], origin + ends[-1]])
    shares = [line["kept_share"] for line in lines if "kept_share" in line]
    if shares:
        row.update(kept_first=shares[0], kept_last=shares[-1],
                   kept_mean=statistics.fmean(statistics.fmean(s) for s in shares[warmup:]))
    return row


def torch_row(folder, started_unix):
    told = read_lines(os.path.join(folder, "row.json"))[-1]
    if "error" in told:
        return {"error": told["error"], "detail": told.get("detail", "")}
    kept = ("losses", "kept_first", "kept_last", "kept_mean", "first_step_s", "timed_unix", "peak_bytes",
            "attention_ran", "cuda_graphs", "mfu", "parameters", "dtypes", "torch", "cudnn", "warm_cache")
    row = times_row(told["step_ms"], told["timed_s"], told["batch"] * told["seq"])
    row.update({key: told[key] for key in kept if key in told})
    row["start_to_first_step_s"] = told["first_step_unix"] - started_unix
    return row
