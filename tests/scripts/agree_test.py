"""The comparisons of tools/agree: that they find what differs, and whole runs of very small models."""

import contextlib
import io
import json
import os
import tempfile
import types
import unittest

from agree_support import SIZES, STEPC, silently, write_shard

import across_devices
import runs
import with_pytorch

SMALL = [*SIZES, "batch=4", "warmup=0", "lr=0.01"]


def run(losses, choices=None, state="s"):
    return types.SimpleNamespace(losses=losses, choices=choices, state=state, kept=[None] * len(losses),
                                 bits=lambda: {"losses": losses, "choices": choices, "state": state})


class AcrossDevices(unittest.TestCase):
    def found(self, left, right, window=2, repeats=None):
        return {"repeats": repeats or {}, **across_devices.compare(left, right, window)}

    def test_equal_runs_agree(self):
        found = self.found(run([4.0, 3.0], [[[0, 1]], [[1, 1]]]), run([4.0, 3.0], [[[0, 1]], [[1, 1]]]))
        self.assertIsNone(found["first_differing_choice"])
        self.assertEqual(across_devices.complaints_of(found, 0.0), [])

    def test_first_differing_choice_ends_the_strict_part(self):
        left = run([4.0, 3.0, 2.0], [[[0, 1], [2, 2]]] * 3)
        choices = [[[0, 1], [2, 2]], [[0, 1], [2, 3]], [[1, 1], [2, 3]]]
        found = self.found(left, run([4.0, 3.03, 2.02], choices), window=3)
        self.assertEqual(found["first_differing_choice"], 2)
        self.assertEqual([row["differing"] for row in found["steps"]], [[0, 0], [0, 1], [1, 1]])
        self.assertEqual(across_devices.complaints_of(found, 0.02), [])
        # The same losses with equal choices, or a narrower window, are too far apart.
        strict = self.found(left, run([4.0, 3.03, 2.02], left.choices), window=3)
        self.assertEqual(len(across_devices.complaints_of(strict, 0.02)), 2)
        self.assertEqual(len(across_devices.complaints_of(found, 0.005)), 1)

    def test_windows_are_means_and_the_last_may_be_short(self):
        windows = self.found(run([1.0, 3.0, 5.0]), run([2.0, 2.0, 6.0]))["windows"]
        self.assertEqual([(w["first"], w["last"], w["left"], w["right"]) for w in windows],
                         [(1, 2, 2.0, 2.0), (3, 3, 5.0, 6.0)])
        self.assertAlmostEqual(windows[1]["relative"], 0.2)

    def test_nan_is_a_complaint(self):
        found = self.found(run([1.0, float("nan")]), run([1.0, float("nan")]))
        self.assertEqual(len(across_devices.complaints_of(found, 0.02)), 2)

    def test_repeating_is_to_the_bit(self):
        first = run([1.0, 2.0], [[[1]], [[2]]])
        self.assertEqual(across_devices.repeats([first, run([1.0, 2.0], [[[1]], [[2]]])]), [])
        self.assertEqual(across_devices.repeats([first, run([1.0, 2.0 + 2**-51], [[[1]], [[3]]], "t")]),
                         ["losses", "choices", "state"])
        found = self.found(first, first, repeats={"left": ["state"], "right": []})
        self.assertEqual(across_devices.complaints_of(found, 0.02), ["the left device does not repeat itself: state"])

    def test_a_side_without_a_device_ends_with_2(self):
        with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()) as said:
            across_devices.parse_arguments(["--data", "x", "--right", " "])
        self.assertEqual(ended.exception.code, 2)
        self.assertIn("--right: expected a device", said.getvalue())

    def test_runs_of_different_lengths_are_refused(self):
        with self.assertRaises(runs.Failure):
            across_devices.compare(run([1.0]), run([1.0, 2.0]), 1)


class Reports(unittest.TestCase):
    def test_a_folder_that_is_not_there_is_made(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            out = os.path.join(folder, "new", "out")
            runs.write_report(out, "text", {"a": 1})
            self.assertEqual(sorted(os.listdir(os.path.dirname(out))), ["out.json", "out.md"])


class WithPyTorch(unittest.TestCase):
    def test_complaints(self):
        row = {"name": "embed", "relative": 2e-4}
        found = {"weights_that_differ": ["head"], "tensors": [row, {"name": "head", "relative": 1e-5}],
                 "tolerance": 1e-4}
        self.assertEqual(with_pytorch.gradient_complaints(found),
                         ["initial values of head", "gradient of embed: relative error 2.00e-04"])
        losses = {"steps": [{"step": 1, "stepc": 2.0, "torch": 2.0, "relative": 0.0},
                            {"step": 2, "stepc": 2.0, "torch": 3.0, "relative": float("nan")}],
                  "tolerance": 1e-3, "routing": "own"}
        self.assertEqual(with_pytorch.loss_complaints(losses), ["loss of step 2, routing own: 2.0 and 3.0"])

    def test_bad_arguments_end_with_2(self):
        for arguments in ([], ["--data", "x", "--steps", "1"], ["--data", "x", "--part", "all"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                with_pytorch.parse_arguments(arguments)
            self.assertEqual(ended.exception.code, 2)


@unittest.skipUnless(STEPC, "needs STEPC_BINARY")
class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.shard = os.path.join(self.folder, "train.tok")
        write_shard(self.shard)

    def agree(self, arguments):
        out = os.path.join(self.folder, "out")
        code, _, err = silently(across_devices.main, ["--data", self.shard, "--stepc", STEPC, "--out", out, *arguments])
        with open(out + ".json") as file:
            return code, json.load(file), err

    def test_threads_change_nothing(self):
        code, found, err = self.agree(["--left", "host --threads 2", "--right", "host --threads 1", "--steps", "30",
                                       "--window", "10", *runs.settings(SMALL)])
        self.assertEqual((code, found["complaints"]), (0, []), err)
        self.assertEqual(found["repeats"], {"left": [], "right": []})
        self.assertIsNone(found["first_differing_choice"])
        self.assertEqual([row["relative"] for row in found["steps"]], [0.0] * 30)
        self.assertEqual([row["choices"] for row in found["steps"]], [2 * 4 * 32 * 2] * 30)
        self.assertLess(found["windows"][-1]["left"], found["windows"][0]["left"] - 0.2)

    def test_emulator_beside_the_cpu(self):
        code, found, err = self.agree(["--left", "host", "--right", "emulator", "--steps", "2", "--once",
                                       *runs.settings([*SMALL, "layers=1", "batch=1"])])
        self.assertEqual((code, found["complaints"]), (0, []), err)
        self.assertLess(found["steps"][0]["relative"], 1e-3)
        self.assertGreater(sum(row["relative"] for row in found["steps"]), 0)  # sums have another order

    def test_another_learning_rate_disagrees(self):
        code, found, err = self.agree(["--left", "host", "--right", "host --set lr=0.05", "--steps", "6", "--once",
                                       "--tolerance", "0.005", *runs.settings(SMALL)])
        self.assertEqual(code, 1)
        self.assertEqual(found["steps"][0]["relative"], 0.0)  # the first loss comes before the first update
        self.assertGreater(found["first_differing_choice"], 1)
        self.assertEqual(len(found["complaints"]), 1)
        self.assertIn("disagreement: steps 1 to 6: mean loss ", err)

    def test_a_command_that_fails_is_named(self):
        arguments = ["--data", self.shard, "--stepc", STEPC, "--right", "host", "--set", "dim=7"]
        code, _, err = silently(across_devices.main, arguments)
        self.assertEqual(code, 1)
        self.assertIn("ended with 2: stepc: dim: expected heads x head_dim", err)


if __name__ == "__main__":
    unittest.main()
