#!/usr/bin/env python3
"""Where a step's time goes on both sides, by kind of kernel.

  stepc train .. --trace step.json
  pytorch_baseline.py .. --kernels --json rows.jsonl
  kernel_table.py --trace step.json --torch rows.jsonl
"""

import argparse
import json
import sys

KINDS = {"products": "bf16 products, with what is fused into them", "attention_forward": "attention, forward",
         "attention_backward": "attention, gradient", "optimizer": "AdamW by itself", "routers": "routers' products",
         "rest": "everything else"}
OF_TORCH = {"gemm": "products", "attention_forward": "attention_forward", "attention_backward": "attention_backward",
            "optimizer": "optimizer", "router_gemm": "routers", "copy": "rest", "other": "rest"}
# No kernel without tensor cores comes near this, and every product of some size is beyond it.
PRODUCT_GFLOPS = 5e4


def kind_of_event(event):
    name = event["name"]
    if "attention_grad" in name:
        return "attention_backward"
    if ".attention" in name:
        return "attention_forward"
    if event["args"].get("GFLOP/s", 0) >= PRODUCT_GFLOPS:
        return "products"
    if event["cat"] == "optimizer":
        return "optimizer"
    return "routers" if "router" in name else "rest"


def stepc_kinds(trace, program="step"):
    """Milliseconds by kind of one program of stepc's trace."""
    threads = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    if program not in threads.values():
        raise ValueError(f"the trace has no program {program}")
    kinds = dict.fromkeys(KINDS, 0.0)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and threads.get(event["tid"]) == program:
            kinds[kind_of_event(event)] += event["dur"] / 1e3
    return kinds


def torch_kinds(row):
    kinds = dict.fromkeys(KINDS, 0.0)
    for category, ms in row["kernels"]["by_category_ms"].items():
        kinds[OF_TORCH[category]] += ms
    return kinds


def table_of(columns):
    """Of (heading, kinds, milliseconds of the step or None)."""
    lines = ["| ms a step | " + " | ".join(heading for heading, *_ in columns) + " |",
             "|---" * (len(columns) + 1) + "|"]
    for kind, title in KINDS.items():
        lines.append(f"| {title} | " + " | ".join(f"{kinds[kind]:.1f}" for _, kinds, _ in columns) + " |")
    totals = [sum(kinds.values()) for _, kinds, _ in columns]
    lines.append("| kernels in all | " + " | ".join(f"{total:.1f}" for total in totals) + " |")
    lines.append("| the step | " + " | ".join(f"{step:.1f}" if step else "" for *_, step in columns) + " |")
    return "\n".join(lines)


def read_torch(path):
    """The last row of each tier that has kernels."""
    with open(path) as file:
        rows = [json.loads(line) for line in file if line.strip()]
    return list({(r["tier"], r["attention"], r["masters"], r["routing"], r["batch"]): r for r in rows
                 if "kernels" in r}.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="of stepc train --trace")
    parser.add_argument("--step-ms", type=float, help="stepc's whole step, for the last line")
    parser.add_argument("--torch", help="rows of pytorch_baseline.py --kernels --json")
    options = parser.parse_args()
    if not (options.trace or options.torch):
        parser.error("expected --trace or --torch")
    columns = []
    try:
        if options.trace:
            with open(options.trace) as file:
                columns.append(("stepc", stepc_kinds(json.load(file)), options.step_ms))
        for row in read_torch(options.torch) if options.torch else []:
            columns.append((f"torch {row['tier']} ({row['routing']}, {'+'.join(row['attention_ran'])})",
                            torch_kinds(row), row["median_ms"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"cannot read: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(table_of(columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
