#!/usr/bin/env python3
"""Trains the same model from the same seed on the same data on two devices, each of them twice.

Each device must repeat itself to the bit: losses, routing choices and the last checkpoint. Between the devices sums
have another order, so that a token whose experts are as good as equally likely goes to another one sooner or later.
Until the first such choice losses are compared step by step, after it the means of windows of steps.

  across_devices.py --data tiny.tok --left host --right cuda
  across_devices.py --data tiny.tok --left "host --threads 1" --right emulator --steps 2 --set layers=1

A side is a device of `stepc train`, with further options of it where wanted. Ends with 1 where something disagrees.
"""

import argparse
import os
import sys
import tempfile

import runs

STEP_TOLERANCE = 2e-3  # relative, of a loss before the first differing choice


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", required=True, help="training shard")
    add("--left", default="host", metavar="DEVICE [OPTIONS]")
    add("--right", default="cuda", metavar="DEVICE [OPTIONS]")
    add("--preset", default="tiny")
    add("--set", action="append", default=[], metavar="KEY=VALUE")
    add("--steps", type=int, default=200)
    add("--window", type=int, default=20, help="steps of a mean")
    add("--tolerance", type=float, default=0.02, help="relative, between the means of a window")
    add("--once", action="store_true", help="run each side once: nothing is said of repeating")
    add("--stepc", default=runs.default_stepc())
    add("--work", help="folder of the runs (default: a temporary one)")
    add("--out", help="OUT.md and OUT.json (default: the table to standard output)")
    options = parser.parse_args(arguments)
    for name in ("steps", "window"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: expected at least 1")
    for side in ("left", "right"):
        if not getattr(options, side).split():
            parser.error(f"--{side}: expected a device, found nothing")
    return options


def run_sides(options, work):
    """side -> its runs, one or two."""
    made = {}
    for side in ("left", "right"):
        device, *more = getattr(options, side).split()
        arguments = ["--preset", options.preset, *runs.settings([f"steps={options.steps}", *options.set]), "--data",
                     options.data, "--device", device, *more]
        turns = range(1 if options.once else 2)
        made[side] = [runs.train(options.stepc, os.path.join(work, f"{side}-{turn}"), arguments) for turn in turns]
    return made


def repeats(pair):
    """What differs between two runs of one device; empty where they are the same to the bit."""
    first, second = (run.bits() for run in pair)
    return [key for key in first if first[key] != second[key]]


def differing(left, right):
    """Choices of one step that differ, by layer."""
    return [sum(a != b for a, b in zip(*layer)) for layer in zip(left, right)]


def relative(found, wanted):
    return abs(found - wanted) / abs(wanted)


def compare(left, right, window):
    """The two sides' runs, step by step and then by windows."""
    if len(left.losses) != len(right.losses):
        raise runs.Failure(f"{len(left.losses)} steps on the left, {len(right.losses)} on the right")
    steps = []
    for step, (a, b) in enumerate(zip(left.losses, right.losses)):
        row = {"step": step + 1, "left": a, "right": b, "relative": relative(b, a)}
        if left.choices:
            row["differing"] = differing(left.choices[step], right.choices[step])
            row["choices"] = sum(len(layer) for layer in left.choices[step])
        steps.append(row)
    first = next((row["step"] for row in steps if sum(row.get("differing", []))), None)
    windows = []
    for begin in range(0, len(steps), window):
        part = steps[begin : begin + window]
        means = [sum(row[side] for row in part) / len(part) for side in ("left", "right")]
        windows.append({"first": begin + 1, "last": begin + len(part), "left": means[0], "right": means[1],
                        "relative": relative(means[1], means[0])})
    return {"steps": steps, "first_differing_choice": first, "windows": windows}


def complaints_of(found, tolerance):
    complaints = [f"the {side} device does not repeat itself: {', '.join(what)}"
                  for side, what in found["repeats"].items() if what]
    first = found["first_differing_choice"] or len(found["steps"]) + 1
    for row in found["steps"][: first - 1]:
        if not row["relative"] <= STEP_TOLERANCE:
            complaints.append(f"step {row['step']}, before any choice differs: loss {row['left']} and {row['right']}")
    for row in found["windows"]:
        if not row["relative"] <= tolerance:
            complaints.append(f"steps {row['first']} to {row['last']}: mean loss {row['left']} and {row['right']}")
    return complaints


def report(options, found):
    text = [f"{options.preset}, {options.steps} steps: {options.left} and {options.right}", ""]
    for side, what in found["repeats"].items():
        text.append(f"{side} ({getattr(options, side)}): two runs " +
                    (f"differ in {', '.join(what)}" if what else "are the same to the bit (losses, choices, state)"))
    first = found["first_differing_choice"]
    if found["steps"] and "differing" not in found["steps"][0]:
        text.append("nothing is routed: losses alone are compared")
    elif first is None:
        text.append("every token goes to the same experts in every step")
    else:
        row = found["steps"][first - 1]
        text.append(f"first differing choice: step {first}, {sum(row['differing'])} of {row['choices']} "
                    f"(by layer {', '.join(map(str, row['differing']))})")
    before = found["steps"][: first - 1] if first else found["steps"]
    if before:
        text.append(f"largest difference of a loss until then: {max(row['relative'] for row in before):.1e} (relative)")
    rows = []
    for row in found["windows"]:
        steps = found["steps"][row["first"] - 1 : row["last"]]
        moved = sum(sum(step.get("differing", [])) for step in steps)
        chosen = sum(step.get("choices", 0) for step in steps)
        rows.append((f"{row['first']}-{row['last']}", f"{row['left']:.5f}", f"{row['right']:.5f}",
                     f"{100 * row['relative']:.3f}%", f"{100 * moved / chosen:.2f}%" if chosen else ""))
    text += ["", runs.markdown(("steps", "mean loss, left", "right", "difference", "choices that differ"), rows)]
    return "\n".join(text)


def main():
    options = parse_arguments()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            made = run_sides(options, options.work or temporary)
        told = ("left", "right", "preset", "set", "steps", "window", "tolerance")
        found = {"options": {key: getattr(options, key) for key in told},
                 "repeats": {side: repeats(pair) for side, pair in made.items() if len(pair) == 2},
                 **compare(made["left"][0], made["right"][0], options.window)}
    except runs.Failure as failure:
        print(f"across_devices: {failure}", file=sys.stderr)
        return 1
    found["complaints"] = complaints_of(found, options.tolerance)
    runs.write_report(options.out, report(options, found), found)
    return runs.verdict(found["complaints"])


if __name__ == "__main__":
    sys.exit(main())
