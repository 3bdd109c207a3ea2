#!/usr/bin/env python3
"""The opponent: stepc's reference model (docs/design.md) as strong as plain PyTorch allows, on one CUDA device.

Same parameters (stepc's Philox streams, made on the device, or a safetensors file), same shard and windows, same
precision policy, and the same step count. One process measures one tier; rows are JSON lines, a Markdown table follows.
A row is printed only if the parameter count and the dtypes are those of the policy. Running out of memory is a row too.
The folder needs python3 and torch, nothing else.

  pytorch_baseline.py --shard english-train.tok --tier default --batch 16 --steps 40 --routing equal
  pytorch_baseline.py --shard english-train.tok --preset narrow --policy fp32 --tier eager --device cpu \\
      --batch 2 --steps 0 --export-gradients gradients.safetensors
"""

import argparse
import json
import os
import sys
import time
import zlib

STARTED = time.perf_counter()
PRESET_NAMES = ("moe-4b", "narrow")
TIER_NAMES = ("eager", "default", "reduce-overhead", "max-autotune")
OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED", "OutOfMemoryError")


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", required=True, help="a TOK1 file")
    parser.add_argument("--preset", choices=PRESET_NAMES, default="moe-4b")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a number of the preset")
    parser.add_argument("--tier", choices=TIER_NAMES, default="default")
    parser.add_argument("--policy", choices=["bf16", "fp32"], default="bf16",
                        help="fp32: every parameter, product and attention in fp32, for comparisons")
    parser.add_argument("--masters", choices=["bf16", "fp32"], default="bf16",
                        help="bf16: moments in fp32, compiled update; fp32: stock autocast and fused AdamW")
    parser.add_argument("--attention", choices=["cudnn", "flash", "math"],
                        help="default: cudnn; math (plain products) on a CPU and in fp32")
    parser.add_argument("--routing", choices=["own", "equal"], default="equal",
                        help="equal: assignment j goes to expert j modulo their number, which fills every slot")
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--steps", type=int, default=40, help="with the warm-up; 0: only export")
    parser.add_argument("--warmup", type=int, default=10, help="steps that are waited for and not timed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--import", dest="weights", metavar="FILE", help="initial weights: safetensors, stepc's names")
    parser.add_argument("--export-gradients", metavar="FILE",
                        help="loss, cross_entropy, aux and the gradient of every parameter of the first step")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--peak", type=float, default=989.4e12, help="dense bf16 FLOP/s that MFU is of")
    parser.add_argument("--cache", metavar="DIR", help="keep compiled code here, a folder a combination of options; "
                        "without it nothing is reused, so that a first step is a cold one")
    parser.add_argument("--json", help="append the rows to this file")
    parser.add_argument("--kernels", action="store_true", help="milliseconds of one more step by kind of kernel")
    parser.add_argument("--progress", action="store_true", help="a line for each step of the warm-up")
    args = parser.parse_args(arguments)
    plain = args.device == "cpu" or args.policy == "fp32"
    args.attention = args.attention or ("math" if plain else "cudnn")
    complaint = complaint_about(args, plain)
    if complaint:
        parser.error(complaint)
    return args


def complaint_about(args, plain):
    if plain and args.attention != "math":
        return f"--attention {args.attention}: the CPU and --policy fp32 have math alone"
    if args.policy == "fp32" and args.masters == "fp32":
        return "--masters fp32 is autocast to bf16; --policy fp32 has no bf16"
    if args.steps and not 0 < args.warmup < args.steps:
        return f"--warmup {args.warmup}: expected at least 1 and less than --steps {args.steps}"
    if args.steps == 0 and not args.export_gradients:
        return "--steps 0 leaves nothing to do without --export-gradients"
    if args.export_gradients and len(args.batch) > 1:
        return f"--export-gradients takes one batch, found {len(args.batch)}"
    if min(args.batch) < 1:
        return f"--batch {min(args.batch)}: expected at least 1"
    return None


def set_caches(args, batch):
    """Inductor's caches can hand out the graph of the other attention, so each combination has a folder of its own.
    Says whether there is compiled code in it from an earlier run."""
    if not args.cache:
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
        return False
    numbers = f"{zlib.crc32(' '.join(sorted(args.set)).encode()):08x}"
    key = "-".join([args.preset, args.tier, args.policy, args.masters, args.attention, args.routing, f"b{batch}",
                    numbers])
    folder = os.path.join(os.path.abspath(args.cache), key)
    os.environ.pop("TORCHINDUCTOR_FORCE_DISABLE_CACHES", None)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, "triton")
    return os.path.isdir(folder)


def load_tokens(path):
    """Ids of a TOK1 shard."""
    import struct

    import torch

    with open(path, "rb") as file:
        head = file.read(24)
        magic, version, dtype, _, count = struct.unpack("<4sIIIQ", head) if len(head) == 24 else (b"",) * 5
        if magic != b"TOK1" or version != 1 or dtype != 1:
            raise SystemExit(f"{path}: not a TOK1 shard of 16-bit ids")
        raw = bytearray(file.read(2 * count))
    if not raw or len(raw) != 2 * count:
        raise SystemExit(f"{path}: {len(raw) // 2} ids, {count} by its header")
    data = torch.frombuffer(raw, dtype=torch.int16)
    return data.to(torch.int32) & 0xFFFF


def configure(args):
    """The model's configuration, and PyTorch's switches."""
    import torch

    from moe_model import make_config

    c = make_config(args.preset, low=torch.float32 if args.policy == "fp32" else torch.bfloat16,
                    attention="math" if args.attention == "math" else "fused",
                    autocast=args.device if args.masters == "fp32" else None)
    for text in args.set:
        key, _, value = text.partition("=")
        if not isinstance(getattr(c, key, None), int) or not value.isdigit():
            known = ", ".join(k for k, v in vars(c).items() if isinstance(v, int))
            print(f"--set {text}: expected KEY=NUMBER, KEY one of {known}", file=sys.stderr)
            raise SystemExit(2)
        setattr(c, key, int(value))
    if args.device == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("no CUDA device")
        torch.backends.cuda.enable_cudnn_sdp(args.attention == "cudnn")
        torch.backends.cuda.enable_flash_sdp(args.attention == "flash")
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_math_sdp(False)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    return c


def export_gradients(trainer, ids, targets, path):
    """Of the first step, before any update; nothing is changed."""
    import tensor_file

    gradients, (cross_entropy, aux, _) = trainer.gradients(ids, targets)
    told = {"loss": cross_entropy + trainer.now[0] * aux, "cross_entropy": cross_entropy, "aux": aux}
    tensors = {name: value.reshape(()).float() for name, value in told.items()}
    tensors.update(zip(trainer.p, gradients))
    tensor_file.write(path, tensors, {"holds": "gradients by parameter name; loss, cross_entropy, aux"})
    return {name: float(tensors[name]) for name in told}


def measured_row(c, args, batch, tokens):
    import torch

    import measuring
    import tensor_file
    from moe_model import parameter_table
    from moe_training import Trainer

    device = torch.device(args.device)
    begun = time.perf_counter()
    weights = tensor_file.read(args.weights, parameter_table(c)) if args.weights else None
    trainer = Trainer(c, device, args.tier, args.masters, args.routing, batch, args.steps + 1, args.seed, weights)
    row = dict(zip(("parameters", "dtypes"), trainer.check()))
    measuring.synchronize(device)
    row["made_s"] = time.perf_counter() - begun
    if args.export_gradients:
        ids, targets = measuring.windows_ahead(tokens, 1, batch, c.seq, device)[0]
        row["exported"] = export_gradients(trainer, ids, targets, args.export_gradients)
    if args.steps:
        row.update(measuring.measure(trainer, args.tier, tokens, batch, args.steps, args.warmup, args.peak,
                                     args.progress, args.kernels))
    return row


def is_out_of_memory(error):
    return any(part in f"{type(error).__name__}: {error}" for part in OUT_OF_MEMORY)


def row_of(c, args, batch, tokens):
    """A measured row, or one that says that it does not fit."""
    try:
        return measured_row(c, args, batch, tokens)
    except RuntimeError as error:  # inductor and the libraries wrap what the allocator throws
        if not is_out_of_memory(error):
            raise
        return {"error": "out of memory", "detail": str(error).splitlines()[0]}


def table_of(rows):
    lines = ["| tier | masters | attention | routing | batch | tokens/s | ms/step, median (quartiles) | MFU | "
             "peak GiB | first step s | CUDA graphs |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        ran = "+".join(r.get("attention_ran", [r["attention"]]))
        head = f"| {r['tier']} | {r['masters']} | {ran} | {r['routing']} | {r['batch']} | "
        if "error" in r:
            lines.append(head + f"{r['error']} | | | | | |")
        elif "tokens_per_s" in r:
            peak = f"{r['peak_bytes'] / 2**30:.1f}" if "peak_bytes" in r else ""
            graphs = r["cuda_graphs"]["recorded"] if r.get("cuda_graphs") else ""
            times = f"{r['median_ms']:.1f} ({r['low_ms']:.1f}-{r['high_ms']:.1f})"
            lines.append(head + f"{r['tokens_per_s']:.0f} | {times} | {100 * r['mfu']:.1f}% | {peak} | "
                         f"{r['first_step_s']:.1f} | {graphs} |")
    return "\n".join(lines)


def run(args):
    import gc

    import torch

    from measuring import environment
    from moe_training import Mismatch

    imported = time.perf_counter() - STARTED
    c = configure(args)
    tokens = load_tokens(args.shard)
    if len(tokens) <= c.seq:
        raise SystemExit(f"{args.shard}: {len(tokens)} ids, a window takes {c.seq + 1}")
    known = {"side": "pytorch", **environment(torch.device(args.device)), "preset": args.preset, "policy": args.policy,
             "tier": args.tier, "masters": "fp32" if args.policy == "fp32" else args.masters,
             "attention": args.attention, "routing": args.routing, "seq": c.seq,
             "date": time.strftime("%Y-%m-%d"), "import_s": imported}
    rows = []
    for batch in args.batch:
        warm = set_caches(args, batch)
        try:
            rows.append({**known, "batch": batch, "warm_cache": warm, **row_of(c, args, batch, tokens)})
        except Mismatch as error:
            raise SystemExit(str(error)) from None
        text = json.dumps(rows[-1])
        print(text, flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(text + "\n")
        gc.collect()
        if args.device == "cuda":
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    return rows


def main():
    args = parse_arguments()
    set_caches(args, args.batch[0])  # inductor reads it when it is imported
    rows = run(args)
    print(table_of(rows))
    if args.kernels:
        from kernel_categories import text_of

        print("\n\n".join(text_of(row["kernels"]) for row in rows if "kernels" in row))


if __name__ == "__main__":
    main()
