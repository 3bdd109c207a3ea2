"""tools/agree/with_pytorch.py on a small model: gradients and losses of stepc beside PyTorch's, in fp32."""

import json
import os
import tempfile
import unittest

from agree_support import SIZES, STEPC, silently, write_shard

import runs
import with_pytorch


class WithPyTorch(unittest.TestCase):
    @unittest.skipUnless(STEPC, "needs STEPC_BINARY")
    def test_gradients_and_losses_are_pytorchs(self):
        with tempfile.TemporaryDirectory() as folder:
            shard, out = os.path.join(folder, "train.tok"), os.path.join(folder, "out")
            write_shard(shard)
            arguments = ["--data", shard, "--stepc", STEPC, "--batch", "4", "--steps", "8", "--out", out]
            code, _, err = silently(with_pytorch.main, [*arguments, *runs.settings(SIZES)])
            self.assertEqual(code, 0, err)
            with open(out + ".json") as file:
                found = json.load(file)
        self.assertEqual(found["gradients"]["weights_that_differ"], [])
        self.assertEqual(len(found["gradients"]["tensors"]), 2 + 3 + 2 * 7)
        self.assertLess(max(row["relative"] for row in found["gradients"]["tensors"]), 1e-5)
        self.assertEqual([part["routing"] for part in found["losses"]], ["equal", "own"])
        for part in found["losses"]:
            self.assertEqual(len(part["steps"]), 8)
        self.assertNotEqual(found["losses"][0]["steps"][0]["stepc"], found["losses"][1]["steps"][0]["stepc"])


if __name__ == "__main__":
    unittest.main()
