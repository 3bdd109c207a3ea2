"""The paired benchmark: its arithmetic, and rounds end to end with stand-ins for both sides."""

import contextlib
import io
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "..", "..", "tools", "bench")
sys.path.insert(0, BENCH)

import gpu_samples
import kernel_table
import paired_report
from paired import parse_arguments, plan_round, seconds_expected
from paired_sides import BadArgument, parse_tier, parse_variant, stepc_command, torch_command, variants_of
from paired_stats import largest_difference, ratio_of, spread, t_95

FAKE = os.path.join(HERE, "fake_side.py")


class Arithmetic(unittest.TestCase):
    def test_ratio_is_the_geometric_mean(self):
        found = ratio_of([(2, 1), (8, 1)])
        self.assertAlmostEqual(found["ratio"], 4)
        # Logs are 1 and 3 times ln 2: deviation sqrt(2) ln 2, error ln 2, t of one degree 12.706.
        self.assertAlmostEqual(math.log(found["high"] / found["ratio"]), 12.706 * math.log(2), places=6)
        self.assertAlmostEqual(found["low"] * found["high"], found["ratio"] ** 2)

    def test_one_round_has_no_interval(self):
        found = ratio_of([(3, 2)])
        self.assertEqual((found["rounds"], found["low"], found["high"]), (1, None, None))
        self.assertAlmostEqual(found["ratio"], 1.5)

    def test_equal_rounds_have_an_interval_of_no_width(self):
        found = ratio_of([(3, 2), (6, 4), (1.5, 1)])
        self.assertAlmostEqual(found["low"], 1.5)
        self.assertAlmostEqual(found["high"], 1.5)

    def test_quantiles_between_entries_are_the_wider(self):
        self.assertEqual(t_95(11), t_95(10))
        self.assertEqual(t_95(1000), t_95(120))

    def test_spread(self):
        self.assertEqual(spread([3, None, 1, 2]), {"median": 2, "min": 1, "max": 3})
        self.assertIsNone(spread([None]))

    def test_largest_difference_names_its_step(self):
        self.assertEqual(largest_difference([1, 2, 3], [1, 4, 4.5, 9]), (2, 2))


class Samples(unittest.TestCase):
    def test_a_value_that_is_not_told(self):
        self.assertEqual(gpu_samples.parse_line("1500, 2600, [N/A], 40, 9"), [1500, 2600, None, 40, 9])
        self.assertIsNone(gpu_samples.parse_line("No devices were found"))

    def test_clocks_are_those_of_the_timed_part_and_memory_is_of_all(self):
        samples = [(0, [100, 1, 50, 30, 900]), (5, [1500, 1, 690, 60, 500]), (6, [1520, 1, 700, 60, 500]),
                   (9, [100, 1, 50, 30, 1])]
        found = gpu_samples.summary(samples, 4, 7)
        self.assertEqual((found["samples"], found["sm_mhz"], found["power_w"], found["memory_used_mib"]),
                         (2, 1510, 695, 900))

    def test_no_nvidia_smi(self):
        sampler = gpu_samples.Sampler("/nowhere/nvidia-smi").start()
        sampler.stop()
        self.assertIsNone(gpu_samples.summary(sampler.samples, 0, 1)["sm_mhz"])
        self.assertEqual(gpu_samples.card_of("/nowhere/nvidia-smi"), {})


class Sides(unittest.TestCase):
    def test_tiers(self):
        tier = parse_tier("max-autotune+flash+fp32:4")
        self.assertEqual((tier.name, tier.attention, tier.masters, tier.every), ("max-autotune", "flash", "fp32", 4))
        self.assertEqual([n for n in range(9) if tier.is_due(n)], [0, 4, 8])
        for wrong in ("fast", "default:0", "default:x", "default+fp8"):
            with self.assertRaises(BadArgument):
                parse_tier(wrong)

    def test_variants(self):
        all_rows = parse_variant("all@own:experts=all,clip=1")
        self.assertEqual((all_rows.label, all_rows.mode, all_rows.settings), ("all", "own", ("experts=all", "clip=1")))
        self.assertEqual([v.label for v in variants_of([all_rows], "own")], ["all"])
        self.assertEqual([v.label for v in variants_of([all_rows], "equal")], ["stepc"])
        for wrong in ("experts=all", "x@both:a=1", ":a=1", "x:a", "x:=1"):
            with self.assertRaises(BadArgument):
                parse_variant(wrong)

    def options(self, *words):
        return parse_arguments(["--data", FAKE, "--rows", "r.jsonl", "--stepc", FAKE, *words])

    def test_order_turns_and_slow_tiers_wait(self):
        options = self.options("--tier", "default", "--tier", "max-autotune:2", "--stepc-set", "rows@own:experts=all",
                               "--stepc-set", "counts@own:experts=counts")
        names = lambda number: [(mode, what.label) for mode, _, what in plan_round(options, number)]
        self.assertEqual(names(0), [("equal", "stepc"), ("equal", "default"), ("equal", "max-autotune"),
                                    ("own", "rows"), ("own", "counts"), ("own", "default"), ("own", "max-autotune")])
        self.assertEqual(names(1), [("equal", "default"), ("equal", "stepc"), ("own", "default"), ("own", "counts"),
                                    ("own", "rows")])

    def test_a_tier_of_an_even_period_turns_too(self):
        options = self.options("--mode", "equal", "--tier", "default", "--tier", "max-autotune:2", "--tier", "eager:4")
        rounds = [[what.label for _, _, what in plan_round(options, number)] for number in range(8)]
        self.assertEqual(rounds, [["stepc", "default", "max-autotune", "eager"], ["default", "stepc"],
                                  ["max-autotune", "stepc", "default"], ["default", "stepc"],
                                  ["eager", "stepc", "default", "max-autotune"], ["default", "stepc"],
                                  ["max-autotune", "stepc", "default"], ["default", "stepc"]])

    def test_both_commands_ask_for_the_same_thing(self):
        options = self.options("--set", "layers=2", "--batch", "4")
        ours = " ".join(stepc_command(options, parse_variant("a:--no-graph,experts=all"), "own", "F"))
        theirs = " ".join(torch_command(options, parse_tier("default"), "own", "F"))
        for text in ("--set batch=4", "--set routing=own", "--set steps=32", "--set layers=2", "--set experts=all",
                     "--sequential", "--no-checkpoint", "--no-graph"):
            self.assertIn(text, ours)
        for text in ("--batch 4", "--routing own", "--steps 32", "--warmup 8", "--set layers=2"):
            self.assertIn(text, theirs)

    def test_expected_seconds_are_the_latest(self):
        planned = plan_round(self.options("--mode", "own"), 0)
        rows = [{"mode": "own", "side": "stepc", "label": "stepc", "process_s": s} for s in (90, 30)]
        self.assertEqual(seconds_expected(planned, rows), 30)


class KernelTable(unittest.TestCase):
    def test_kinds_of_both_sides(self):
        event = lambda name, cat, ms, gflops=0.0, tid=0: {"ph": "X", "name": name, "cat": cat, "tid": tid,
                                                          "dur": 1e3 * ms, "args": {"GFLOP/s": gflops}}
        trace = {"traceEvents": [
            event("fwd.b0.attn.qkv", "forward", 3, 7e5), event("fwd.b0.attn.attention", "forward", 1, 5e5),
            event("bwd.d_b0.attn.attention_grad", "backward", 2, 4e5), event("fwd.b0.router", "forward", 0.5, 2e3),
            event("bwd.d_head", "backward", 0.25, 100), event("opt.head.new", "optimizer", 4, 10),
            event("opt.blocks.0.qkv.new", "optimizer", 8, 6e5),
            event("fwd.init", "forward", 99, 0, tid=1),
            {"ph": "M", "tid": 0, "args": {"name": "step"}}, {"ph": "M", "tid": 1, "args": {"name": "init"}}]}
        found = kernel_table.stepc_kinds(trace)
        self.assertEqual(found, {"products": 11, "attention_forward": 1, "attention_backward": 2, "optimizer": 4,
                                 "routers": 0.5, "rest": 0.25})
        kinds = kernel_table.torch_kinds({"kernels": {"by_category_ms": {"gemm": 5, "copy": 1, "other": 2}}})
        self.assertEqual((kinds["products"], kinds["rest"]), (5, 3))
        text = kernel_table.table_of([("stepc", found, 11.5), ("torch", kinds, None)])
        self.assertIn("| kernels in all | 18.8 | 8.0 |", text)
        self.assertIn("| the step | 11.5 |  |", text)
        with self.assertRaisesRegex(ValueError, "no program evaluate"):
            kernel_table.stepc_kinds(trace, "evaluate")


class Rounds(unittest.TestCase):
    """Whole visits, each a process of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.rows_path = os.path.join(self.folder.name, "rows.jsonl")

    def command(self, *words):
        return [sys.executable, os.path.join(BENCH, "paired.py"), "--data", FAKE, "--rows", self.rows_path, "--stepc",
                FAKE, "--baseline", FAKE, "--python", sys.executable, "--smi", FAKE, "--steps", "12", "--warmup", "2",
                "--batch", "2", *words]

    def visit(self, *words, fail=""):
        environment = {**os.environ, "FAKE_FAIL": fail}
        return subprocess.run(self.command(*words), capture_output=True, text=True, env=environment)

    def rows(self):
        with open(self.rows_path) as file:
            return [json.loads(line) for line in file]

    def report(self):
        return paired_report.report_of(self.rows())

    def test_two_visits_add_up(self):
        for rounds in ("2", "1"):
            done = self.visit("--rounds", rounds, "--tier", "default+flash:2")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = self.rows()
        self.assertEqual([r["round"] for r in rows], [0, 0, 0, 0, 1, 1, 2, 2, 2, 2])
        self.assertEqual(len({r["visit"] for r in rows}), 2)
        (report,) = self.report()
        self.assertEqual((report["card"], report["driver"], report["rounds"], report["missing"]),
                         ("Card X", ["1.2.3"], 3, []))
        equal = report["modes"]["equal"]
        self.assertEqual([s["rounds"] for s in equal["sides"]], [3, 2])
        (ratio,) = equal["ratios"]
        self.assertEqual(ratio["rounds"], 2)
        self.assertTrue(1.2 < ratio["ratio"] < 3, ratio)  # its steps sleep half as long
        self.assertTrue(ratio["low"] <= ratio["ratio"] <= ratio["high"])
        self.assertAlmostEqual(ratio["largest_loss_difference"], 0.001)
        ours, theirs = equal["sides"]
        self.assertEqual((ours["sm_mhz"]["median"], ours["power_w"]["median"]), (1500, 690.5))
        self.assertIsNone(ours["temperature_c"])
        self.assertTrue(ours["losses_repeat"])
        self.assertAlmostEqual(ours["mfu"]["median"] / theirs["mfu"]["median"],
                               ours["tokens_per_s"]["median"] / theirs["tokens_per_s"]["median"])
        self.assertEqual(report["modes"]["own"]["sides"][0]["kept_mean"]["median"], 0.5)

    def test_times_are_those_after_the_warm_up(self):
        self.visit("--mode", "equal")
        (row,) = [r for r in self.rows() if r["side"] == "stepc"]
        self.assertEqual((row["timed_steps"], len(row["step_ms"]), len(row["losses"])), (10, 10, 12))
        self.assertGreater(row["first_step_s"], 0.03)
        self.assertGreater(row["start_to_first_step_s"], row["first_step_s"])
        self.assertLess(row["start_to_first_step_s"], row["process_s"])
        self.assertAlmostEqual(row["mean_ms"], sum(row["step_ms"]) / 10, places=6)
        self.assertAlmostEqual(row["tokens_per_s"], 16e3 / row["mean_ms"], places=3)
        self.assertGreater(row["gpu"]["samples"], 0)

    def test_report_says_that_a_mode_is_missing(self):
        self.visit("--mode", "equal")
        text = paired_report.setting_text(self.report()[0])
        self.assertIn("**Only one mode was measured (equal loads).", text)
        self.assertIn("none: one round", text)
        self.assertIn("asked for cudnn attention, flash ran", text)

    def test_report_says_that_the_models_differ(self):
        self.visit("--mode", "equal")
        rows = self.rows()
        self.assertNotIn("DIFFER", paired_report.setting_text(self.report()[0]))
        rows[0]["losses"][0] += 0.5
        self.assertIn("not the same model", paired_report.setting_text(paired_report.report_of(rows)[0]))

    def test_written_report(self):
        self.visit()
        out = os.path.join(self.folder.name, "deep", "report")
        command = [sys.executable, os.path.join(BENCH, "paired.py"), "--report", self.rows_path, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(out + ".json") as file:
            self.assertEqual(json.load(file)[0]["batch"], 2)
        with open(out + ".md") as file:
            text = file.read()
        self.assertNotIn("Only one mode", text)
        for part in ("## Equal loads", "## The router's own choices", "| stepc | torch default | 1 |",
                     "Card X (700.00 W)", "- MFU counts every assignment",
                     "| step | stepc | torch default |", "| 12 | "):
            self.assertIn(part, text)

    def test_a_failed_side_is_a_row_and_the_others_run(self):
        done = self.visit("--mode", "equal", fail="stepc")
        self.assertEqual(done.returncode, 1)
        ours, theirs = self.rows()
        self.assertEqual((ours["error"], ours["exit_code"]), ("stepc gave up", 1))
        self.assertIn("tokens_per_s", theirs)
        self.assertIn("FAILED 1 times: stepc stepc: stepc gave up", paired_report.setting_text(self.report()[0]))

    def test_out_of_memory_is_a_row_and_no_failure(self):
        done = self.visit("--mode", "equal", fail="memory")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.rows()[1]["error"], "out of memory")

    def test_a_side_that_writes_nothing(self):
        done = self.visit("--mode", "equal", fail="pytorch-silent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("left no result", self.rows()[1]["error"])

    def test_time_limit(self):
        done = self.visit("--mode", "equal", "--limit", "1", fail="pytorch-hang")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.rows()[1]["error"], "still running after 1 s")

    def test_no_round_is_begun_that_would_end_too_late(self):
        self.visit("--mode", "equal")
        done = self.visit("--mode", "equal", "--stop-after", "0.01")
        self.assertEqual((done.returncode, len(self.rows())), (0, 2))
        self.assertIn("left for another visit", done.stdout)

    def test_interrupt_keeps_the_rows(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                before = len(self.rows()) if os.path.exists(self.rows_path) else 0
                environment = {**os.environ, "FAKE_FAIL": "pytorch-hang"}
                process = subprocess.Popen(self.command("--mode", "equal"), stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True, env=environment)
                self.wait_for_rows(before + 1)
                time.sleep(0.3)  # the other side runs
                process.send_signal(number)
                _, err = process.communicate(timeout=30)
                self.assertEqual(process.returncode, 1)
                self.assertIn("rows so far are in", err)
                self.assertEqual(self.rows()[-1]["error"], "interrupted")
                os.remove(self.rows_path)

    def wait_for_rows(self, count):
        for _ in range(600):
            if os.path.exists(self.rows_path) and len(self.rows()) >= count:
                return
            time.sleep(0.05)
        self.fail("no row")

    def test_rows_of_another_build_are_left_out(self):
        self.visit("--mode", "equal")
        rows = self.rows()
        old = [{**r, "stepc_build": "other", "round": 7, "visit": "2000-01-01T00:00:00-1"} for r in rows]
        (report,) = paired_report.report_of(old + rows)
        self.assertEqual((report["left_out"], report["rounds"]), (2, 1))

    def test_visits_that_differ_are_reported_apart(self):
        self.visit("--mode", "equal")
        rows = self.rows()
        self.assertEqual(rows[0]["steps"], 12)
        again = lambda visit, **facts: [{**r, "visit": visit, "round": 1, **(facts if r["side"] == "pytorch" else {})}
                                        for r in rows]
        self.assertEqual([r["rounds"] for r in paired_report.report_of(rows + again("v"))], [2])
        newer = paired_report.report_of(rows + again("v", torch="10.0"))
        self.assertEqual([(r["rounds"], r["torch"]) for r in newer], [(1, ["9.9"]), (1, ["10.0"])])
        longer = [{**r, "steps": 20} for r in again("v")]
        # A visit of which torch's side failed goes with the visit of as many steps.
        failed = [{k: v for k, v in r.items() if k != "torch"} for r in longer]
        failed = [{**r, "visit": "w", "round": 2} for r in failed]
        reports = paired_report.report_of(rows + longer + failed)
        self.assertEqual([(r["rounds"], r["steps"]) for r in reports], [(1, 12), (2, 20)])
        self.assertIn("; 20 steps; ", paired_report.setting_text(reports[1]))

    def test_rows_without_a_number_of_steps_tell_it(self):
        self.visit("--mode", "equal")
        old = [{k: v for k, v in r.items() if k != "steps"} for r in self.rows()]
        self.assertEqual([r["steps"] for r in paired_report.report_of(old)], [12])

    def test_dry_run_prints_the_commands(self):
        done = self.visit("--dry-run", "--mode", "equal")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(done.stdout.splitlines()), 2)
        self.assertFalse(os.path.exists(self.rows_path))

    def test_wrong_arguments(self):
        for words, text in ((["--tier", "fast"], "expected one of eager"), (["--rounds", "0"], "at least 1"),
                            (["--warmup", "11"], "at least 2"), (["--data", "/nowhere"], "no such file"),
                            (["--stepc-set", "x"], "LABEL:key=value"), (["--mode", "both"], "invalid choice"),
                            (["--tier", "default", "--tier", "default:2", "--stepc-set", "default:a=1"], "one label"),
                            (["--rows", "/nowhere/r.jsonl"], "no such folder"),
                            (["--report", "/nowhere"], "no such file")):
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaises(SystemExit) as ended:
                    parse_arguments(self.command(*words)[2:])
                self.assertEqual(ended.exception.code, 2)
                self.assertIn(text, said.getvalue())


if __name__ == "__main__":
    unittest.main()
