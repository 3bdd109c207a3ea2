"""The report of paired rounds: medians, spread, ratios, what the card did, as a dictionary and as Markdown."""

import json
import os
from collections import Counter

from paired_stats import largest_difference, ratio_of, spread

LOSSES_SHOWN = 20
SAME_LOSS = 0.01  # of a first step, from the same weights and tokens: rounding makes 0.0001 of it
NAMES = {"equal": "Equal loads", "own": "The router's own choices"}
MFU_OF_OWN = "MFU counts every assignment, also those that were dropped"
ONE_MODE = ("Only one mode was measured ({}). Empty expert slots are zeros, which draw little power and let a card "
            "clock higher: neither mode says how fast a side is without the other.")


def setting_of(row):
    return (row.get("card", "unknown card"), row.get("preset"), tuple(row.get("set", [])), row.get("batch"),
            row.get("data"))


def visit_facts(rows):
    """What all of a visit's processes had in common, beside the setting; None where no row tells."""
    told = lambda values: next((v for v in values if v is not None), None)
    steps = [r.get("steps") or (r["warmup"] + r["timed_steps"] if "timed_steps" in r else None) for r in rows]
    return told(steps), told(r.get("warmup") for r in rows), told(r.get("torch") for r in rows)


def comparable(rows):
    """The rows of one setting, visits apart that differ in steps, warm-up or version of torch: their medians, losses
    and ratios are not of one thing. A visit that lacks one of the facts joins the newest that has the others."""
    by_visit, groups = {}, []  # groups: [facts, rows]
    for r in rows:
        by_visit.setdefault(r["visit"], []).append(r)
    for visit in by_visit.values():
        facts = visit_facts(visit)
        agrees = lambda known: all(None in pair or pair[0] == pair[1] for pair in zip(facts, known))
        group = next((g for g in reversed(groups) if agrees(g[0])), None)
        if group is None:
            groups.append([facts, list(visit)])
            continue
        group[0] = tuple(b if a is None else a for a, b in zip(group[0], facts))
        group[1] += visit
    return [group for _, group in groups]


def newest_build(rows):
    """Rows of visits with the build of stepc that ran last, and how many that leaves out. Files of several visits may
    have been put together: a later visit may count its rounds from 0."""
    build = max(rows, key=lambda r: (r["visit"], r["round"], r["place"])).get("stepc_build")
    chosen = [r for r in rows if r.get("stepc_build") == build]
    return build, chosen, len(rows) - len(chosen)


def side_summary(rows):
    """Of one side in one mode."""
    first = rows[0]
    gpu = [r.get("gpu", {}) for r in rows]
    told = {"side": first["side"], "label": first["label"], "rounds": len(rows), "timed_steps": first["timed_steps"]}
    for key in ("settings", "tier", "attention", "masters", "attention_ran", "cuda_graphs", "torch", "cudnn"):
        if key in rows[-1]:
            told[key] = rows[-1][key]
    for key in ("tokens_per_s", "median_ms", "mean_ms", "mfu", "first_step_s", "start_to_first_step_s", "kept_mean",
                "peak_bytes"):
        told[key] = spread([r.get(key) for r in rows])
    told["step_ms_quartiles"] = [spread([r[k] for r in rows])["median"] for k in ("low_ms", "high_ms")]
    for key in ("sm_mhz", "power_w", "temperature_c", "memory_used_mib"):
        told[key] = spread([g.get(key) for g in gpu])
    told["first_losses"] = first["losses"][:LOSSES_SHOWN]
    told["losses_repeat"] = all(r["losses"] == first["losses"] for r in rows) if len(rows) > 1 else None
    return told


def ratios(rows):
    """Every form of stepc over every opponent, over the rounds that have both."""
    by_round = {}
    for r in rows:
        by_round.setdefault((r["visit"], r["round"]), {})[r["side"], r["label"]] = r
    labels = list(dict.fromkeys((r["side"], r["label"]) for r in rows))
    result = []
    for ours in (l for l in labels if l[0] == "stepc"):
        for theirs in (l for l in labels if l[0] == "pytorch"):
            both = [(found[ours], found[theirs]) for found in by_round.values() if ours in found and theirs in found]
            if not both:
                continue
            entry = {"stepc": ours[1], "pytorch": theirs[1],
                     **ratio_of([(a["tokens_per_s"], b["tokens_per_s"]) for a, b in both])}
            a, b = both[0]
            entry["first_losses"] = [a["losses"][0], b["losses"][0]]
            entry["largest_loss_difference"], entry["at_step"] = largest_difference(a["losses"], b["losses"])
            result.append(entry)
    return result


def mode_summary(rows):
    good = [r for r in rows if "error" not in r]
    by_side = {}
    for r in good:
        by_side.setdefault((r["side"], r["label"]), []).append(r)
    sides = [side_summary(side) for side in by_side.values()]
    per_token = [s["mfu"]["median"] / s["tokens_per_s"]["median"] for s in sides if s["mfu"]]
    for side in sides:  # the opponent knows what a token costs of the card's peak
        if side["mfu"] is None and per_token:
            side["mfu"] = {k: v * per_token[0] for k, v in side["tokens_per_s"].items()}
    failures = Counter((r["side"], r["label"], r["error"]) for r in rows if "error" in r)
    return {"sides": sorted(sides, key=lambda s: (s["side"] != "stepc", s["label"])), "ratios": ratios(good),
            "failures": [{"side": s, "label": l, "error": e, "times": n} for (s, l, e), n in failures.items()]}


def setting_summary(rows):
    build, rows, left_out = newest_build(rows)
    unique = lambda key: sorted({str(r[key]) for r in rows if r.get(key) is not None})
    modes = {mode: mode_summary([r for r in rows if r["mode"] == mode]) for mode in NAMES
             if any(r["mode"] == mode for r in rows)}
    last = rows[-1]
    return {"card": last.get("card"), "driver": unique("driver"), "power_limit": unique("power_limit"),
            "torch": unique("torch"), "cudnn": unique("cudnn"), "dates": unique("date"), "visits": len(unique("visit")),
            "rounds": len({(r["visit"], r["round"]) for r in rows}), "stepc_build": build, "left_out": left_out,
            "preset": last.get("preset"), "set": last.get("set", []), "batch": last.get("batch"),
            "data": last.get("data"), "steps": visit_facts(rows)[0], "warmup": unique("warmup"), "modes": modes,
            "missing": [m for m in NAMES if m not in modes]}


def report_of(rows):
    by_setting = {}
    for r in rows:
        by_setting.setdefault(setting_of(r), []).append(r)
    return [setting_summary(group) for setting in by_setting.values() for group in comparable(setting)]


# ---- Markdown --------------------------------------------------------------------------------------------------------


def number(summary, form="{:.0f}", scale=1.0, ranged=False):
    """A median, with the range where there is one; empty for what was not measured."""
    if summary is None:
        return ""
    text = form.format(summary["median"] * scale)
    if ranged and summary["min"] != summary["max"]:
        text += f" ({form.format(summary['min'] * scale)} to {form.format(summary['max'] * scale)})"
    return text


def side_line(s):
    name = s["label"] if s["side"] == "stepc" else f"torch {s['label']}"
    low, high = s["step_ms_quartiles"]
    memory = number(s["peak_bytes"], "{:.1f}", 1 / 2**30)
    cells = [name, str(s["rounds"]), number(s["tokens_per_s"], ranged=True),
             f"{number(s['median_ms'], '{:.1f}')} ({low:.1f} to {high:.1f})", number(s["mfu"], "{:.1f}%", 100),
             number(s["kept_mean"], "{:.1f}%", 100), memory, number(s["memory_used_mib"], "{:.1f}", 1 / 1024),
             number(s["start_to_first_step_s"], "{:.1f}", ranged=True), number(s["sm_mhz"]), number(s["power_w"])]
    return "| " + " | ".join(cells) + " |"


SIDE_HEAD = ("| side | rounds | tokens/s, median (range) | ms a step (quartiles) | MFU | kept | GiB allocated | "
             "GiB used | start to first step, s | MHz | W |\n|---|---|---|---|---|---|---|---|---|---|---|")
RATIO_HEAD = ("| stepc | opponent | rounds | ratio | 95% interval | first losses | largest difference of losses |\n"
              "|---|---|---|---|---|---|---|")


def ratio_line(r):
    interval = f"{r['low']:.3f} to {r['high']:.3f}" if r["low"] else "none: one round"
    return (f"| {r['stepc']} | torch {r['pytorch']} | {r['rounds']} | {r['ratio']:.3f} | {interval} | "
            f"{r['first_losses'][0]:.5f}, {r['first_losses'][1]:.5f} | {r['largest_loss_difference']:.4f} at step "
            f"{r['at_step']} |")


def notes_of(summary):
    """What a reader should know of the sides and does not see in the table."""
    notes = []
    for s in summary["sides"]:
        if s["side"] == "stepc":
            if s["settings"]:
                notes.append(f"{s['label']}: `{' '.join(s['settings'])}`")
            if s["losses_repeat"] is not None:
                notes.append(f"{s['label']}: losses of all rounds "
                             + ("are the same to the bit" if s["losses_repeat"] else "DIFFER between rounds"))
            continue
        ran = s.get("attention_ran")
        if ran and ran != [s["attention"]]:
            notes.append(f"torch {s['label']}: asked for {s['attention']} attention, {' and '.join(ran)} ran")
        if s.get("cuda_graphs"):
            g = s["cuda_graphs"]
            notes.append(f"torch {s['label']}: {g['recorded']} CUDA graphs recorded, {g['skipped']} skipped")
    for r in summary["ratios"]:
        if abs(r["first_losses"][0] - r["first_losses"][1]) > SAME_LOSS:
            notes.append(f"first losses of {r['stepc']} and torch {r['pytorch']} DIFFER: not the same model or data")
    return notes + [f"FAILED {f['times']} times: {f['side']} {f['label']}: {f['error']}" for f in summary["failures"]]


def losses_text(sides):
    """The first losses of every side, from its first round: the same weights and windows on all."""
    names = [s["label"] if s["side"] == "stepc" else f"torch {s['label']}" for s in sides]
    steps = min((len(s["first_losses"]) for s in sides), default=0)
    lines = [f"| step | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for step in range(steps):
        lines.append(f"| {step + 1} | " + " | ".join(f"{s['first_losses'][step]:.5f}" for s in sides) + " |")
    return ["Losses, step by step:", "", *lines, ""] if steps else []


def mode_text(mode, summary):
    lines = [f"## {NAMES[mode]}", "", SIDE_HEAD, *map(side_line, summary["sides"]), ""]
    if summary["ratios"]:
        lines += [RATIO_HEAD, *map(ratio_line, summary["ratios"]), ""]
    notes = ([MFU_OF_OWN] if mode == "own" else []) + notes_of(summary)
    return lines + [f"- {n}" for n in notes] + ([""] if notes else []) + losses_text(summary["sides"])


def named(what, values):
    return f"{what} {', '.join(values)}".strip() if values else ""


def setting_text(s):
    title = f"# stepc beside PyTorch: {s['preset']}, batch {s['batch']}{''.join(', ' + x for x in s['set'])}"
    limit = f" ({', '.join(s['power_limit'])})" if s["power_limit"] else ""
    facts = [(s["card"] or "unknown card") + limit, named("driver", s["driver"]), named("torch", s["torch"]),
             named("cuDNN", s["cudnn"]), named("", s["dates"]), f"rounds: {s['rounds']}, visits: {s['visits']}",
             f"{s['steps']} steps" if s["steps"] else "", named("warm-up steps", s["warmup"]), s["data"],
             f"stepc build {s['stepc_build']}"]
    lines = [title, "", "; ".join(filter(None, facts)) + ".", ""]
    if s["left_out"]:
        lines += [f"{s['left_out']} rows of other builds of stepc are left out.", ""]
    if s["missing"]:
        lines += ["**" + ONE_MODE.format(", ".join(NAMES[m].lower() for m in s["modes"])) + "**", ""]
    for mode, summary in s["modes"].items():
        lines += mode_text(mode, summary)
    return "\n".join(lines)


def write(rows, out):
    """The exit code."""
    if not rows:
        print("no rows to report")
        return 1
    report = report_of(rows)
    text = "\n".join(map(setting_text, report))
    if not out:
        print(text)
        return 0
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    with open(out + ".md", "w") as file:
        file.write(text)
    with open(out + ".json", "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    print(f"{out}.md, {out}.json")
    return 0
