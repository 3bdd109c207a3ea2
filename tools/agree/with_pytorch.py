#!/usr/bin/env python3
"""stepc beside the same model in PyTorch (tools/baseline), from the same weights and tokens.

  gradients: initial weights to the bit; loss and the gradient of every parameter under forced equal routing
  losses:    the first steps of training, each side with its own gradients and updates

  with_pytorch.py --data english-train.tok                              narrow in fp32, on this machine's CPU
  with_pytorch.py --data english-train.tok --device cuda                the same on a card
  with_pytorch.py --data english-train.tok --device cuda --preset moe-4b --precision bf16 --batch 16 --part losses

Needs torch in the python3 that runs it. Ends with 1 where something is further apart than the tolerance that is
stated beside it. Where the two sides round differently: docs/agreement.md.
"""

import argparse
import os
import sys
import tempfile

import runs

BASELINE = os.path.join(runs.ROOT, "tools", "baseline")
PARTS = ("gradients", "losses")
ROUTINGS = ("equal", "own")
# Relative: of a gradient as a vector, of a loss. With the router's own choices one token that goes elsewhere moves more
# than all roundings of fp32 do.
GRADIENT_TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}
LOSS_TOLERANCE = {("fp32", "equal"): 1e-5, ("fp32", "own"): 2e-3, ("bf16", "equal"): 2e-3, ("bf16", "own"): 1e-2}


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", required=True, help="training shard; both sides take its windows in order")
    add("--part", action="append", choices=PARTS, help="repeatable; both without it")
    add("--preset", choices=["narrow", "moe-4b"], default="narrow")
    add("--precision", choices=["fp32", "bf16"], default="fp32")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="a number of the model, for both sides")
    add("--batch", type=int, default=8)
    add("--steps", type=int, default=20, help="of the losses")
    add("--routing", action="append", choices=ROUTINGS, help="of the losses; repeatable, both without it")
    add("--tier", default="eager", help="PyTorch's, in the steps of the losses")
    add("--device", choices=["host", "cuda"], default="host", help="PyTorch runs on the CPU beside host")
    add("--stepc", default=runs.default_stepc())
    add("--baseline", default=os.path.join(BASELINE, "pytorch_baseline.py"))
    add("--work", help="folder of what is exchanged (default: a temporary one)")
    add("--out", help="OUT.md and OUT.json (default: the tables to standard output)")
    options = parser.parse_args(arguments)
    if options.batch < 1 or options.steps < 2:
        parser.error("expected --batch of at least 1 and --steps of at least 2")
    options.part = options.part or list(PARTS)
    options.routing = options.routing or list(ROUTINGS)
    return options


# ---- commands --------------------------------------------------------------------------------------------------------


def stepc_model(options, routing):
    pairs = [f"batch={options.batch}", f"precision={options.precision}", f"routing={routing}", *options.set]
    return ["--preset", options.preset, *runs.settings(pairs), "--data", options.data, "--sequential", "--device",
            options.device]


def torch_model(options, routing, tier):
    return [sys.executable, options.baseline, "--preset", options.preset, *runs.settings(options.set), "--policy",
            options.precision, "--shard", options.data, "--routing", routing, "--batch", str(options.batch), "--tier",
            tier, "--device", "cpu" if options.device == "host" else "cuda"]


# ---- gradients -------------------------------------------------------------------------------------------------------


def relative_error(found, wanted):
    """As vectors, in double precision."""
    found, wanted = found.double(), wanted.double()
    return float((found - wanted).norm() / (wanted.norm() + 1e-300))


def weights_that_differ(config_of, options, path):
    """Names of the parameters whose initial values are not the same bits on both sides."""
    import torch

    sys.path.insert(0, BASELINE)
    import moe_model
    import tensor_file

    c = config_of(moe_model)
    # Where the gradients were made, which need not be here.
    device = "cuda" if options.device == "cuda" else "cpu"
    made = moe_model.make_parameters(c, 1, device)
    return [name for name, value in tensor_file.read(path)
            if value.dtype != made[name].dtype or not torch.equal(value, made[name].cpu())]


def baseline_config(options):
    def make(moe_model):
        import torch

        c = moe_model.make_config(options.preset, low=torch.float32 if options.precision == "fp32" else torch.bfloat16)
        for pair in options.set:
            key, _, value = pair.partition("=")
            setattr(c, key, int(value))
        return c

    return make


def compare_gradients(options, work):
    ours, theirs, weights = (os.path.join(work, name + ".safetensors") for name in ("stepc", "torch", "weights"))
    runs.run_command([options.stepc, "gradients", *stepc_model(options, "equal"), "--out", ours, "--weights", weights])
    runs.run_command([*torch_model(options, "equal", "eager"), "--steps", "0", "--export-gradients", theirs])
    differ = weights_that_differ(baseline_config(options), options, weights)
    import tensor_file

    told = dict(tensor_file.read(ours, ["loss", "aux"]))
    rows = []
    for name, wanted in tensor_file.read(theirs):
        if name == "loss":
            continue  # the sum of the two that follow
        key = {"cross_entropy": "loss"}.get(name, name)
        found = told[key] if key in told else dict(tensor_file.read(ours, [key]))[key]
        if found.shape != wanted.shape:
            raise runs.Failure(f"{name}: {list(found.shape)} in stepc, {list(wanted.shape)} in PyTorch")
        rows.append({"name": name, "shape": list(wanted.shape), "norm": float(wanted.double().norm()),
                     "relative": relative_error(found, wanted),
                     "largest": float((found.double() - wanted.double()).abs().max())})
    return {"weights_that_differ": differ, "tensors": rows, "tolerance": GRADIENT_TOLERANCE[options.precision]}


def gradient_report(found):
    rows = [(row["name"], row["shape"], f"{row['norm']:.6g}", f"{row['relative']:.2e}", f"{row['largest']:.2e}")
            for row in found["tensors"]]
    same = found["weights_that_differ"]
    return "\n".join([
        "initial weights: " + (f"{', '.join(same)} differ" if same else "the same bits on both sides"),
        f"losses, then gradients under forced equal routing; tolerance {found['tolerance']:.0e}", "",
        runs.markdown(("tensor", "shape", "norm (PyTorch)", "relative error", "largest difference"), rows)])


def gradient_complaints(found):
    complaints = [f"initial values of {name}" for name in found["weights_that_differ"]]
    for row in found["tensors"]:
        if not row["relative"] <= found["tolerance"]:
            complaints.append(f"gradient of {row['name']}: relative error {row['relative']:.2e}")
    return complaints


# ---- losses ----------------------------------------------------------------------------------------------------------


def compare_losses(options, routing, work):
    folder, row_path = os.path.join(work, "run-" + routing), os.path.join(work, f"row-{routing}.json")
    arguments = [*stepc_model(options, routing), *runs.settings([f"steps={options.steps}"]), "--no-checkpoint"]
    ours = runs.train(options.stepc, folder, arguments, records_routing=False)
    if os.path.exists(row_path):
        os.remove(row_path)
    runs.run_command([*torch_model(options, routing, options.tier), "--steps", str(options.steps), "--warmup", "1",
                      "--json", row_path])
    (row,) = runs.read_lines(row_path)
    if "losses" not in row:
        raise runs.Failure(f"PyTorch: {row.get('error', 'no losses')}")
    steps = [{"step": i + 1, "stepc": a, "torch": b, "relative": abs(a - b) / abs(b)}
             for i, (a, b) in enumerate(zip(ours.losses, row["losses"]))]
    if len(steps) != options.steps:
        raise runs.Failure(f"{len(steps)} losses, expected {options.steps}")
    return {"steps": steps, "kept_stepc": [ours.kept[0], ours.kept[-1]],
            "kept_torch": [row["kept_first"], row["kept_last"]], "routing": routing, "tier": options.tier,
            "tolerance": LOSS_TOLERANCE[options.precision, routing], "torch": row.get("torch"), "card": row.get("card")}


def mean(values):
    return sum(values) / len(values)


def loss_report(found):
    rows = [(row["step"], f"{row['stepc']:.6f}", f"{row['torch']:.6f}", f"{row['stepc'] - row['torch']:+.6f}")
            for row in found["steps"]]
    kept = [f"{name} {mean(found[key][0]):.3f} and {mean(found[key][1]):.3f}"
            for name, key in (("stepc", "kept_stepc"), ("PyTorch", "kept_torch"))]
    return "\n".join([f"losses, routing {found['routing']}, tier {found['tier']}; tolerance {found['tolerance']:.0e} "
                      f"(relative)", f"share of assignments kept at the first and the last step: {'; '.join(kept)}", "",
                      runs.markdown(("step", "stepc", "PyTorch", "difference"), rows)])


def loss_complaints(found):
    return [f"loss of step {row['step']}, routing {found['routing']}: {row['stepc']} and {row['torch']}"
            for row in found["steps"] if not row["relative"] <= found["tolerance"]]


def main():
    options = parse_arguments()
    title = f"{options.preset} in {options.precision}, batch {options.batch}, on {options.device}"
    if options.set:
        title += f" ({', '.join(options.set)})"
    texts, found, complaints = [title], {"title": title}, []
    try:
        with tempfile.TemporaryDirectory() as temporary:
            work = options.work or temporary
            os.makedirs(work, exist_ok=True)
            if "gradients" in options.part:
                found["gradients"] = compare_gradients(options, work)
                texts.append(gradient_report(found["gradients"]))
                complaints += gradient_complaints(found["gradients"])
            for routing in options.routing if "losses" in options.part else []:
                losses = compare_losses(options, routing, work)
                found.setdefault("losses", []).append(losses)
                texts.append(loss_report(losses))
                complaints += loss_complaints(losses)
    except (runs.Failure, ImportError) as failure:
        print(f"with_pytorch: {failure}", file=sys.stderr)
        return 1
    found["complaints"] = complaints
    runs.write_report(options.out, "\n\n".join(texts), found)
    return runs.verdict(complaints)


if __name__ == "__main__":
    sys.exit(main())
