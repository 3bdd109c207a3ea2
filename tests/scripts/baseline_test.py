"""The opponent on a CPU: that it is the reference model, that its steps are what they say, and its command line."""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BASELINE = os.path.join(ROOT, "tools", "baseline")
ORACLE = os.path.join(ROOT, "tools", "oracle")
sys.path[:0] = [BASELINE, ORACLE]

import torch

import kernel_categories
import measuring
import moe_model
import moe_training
import tensor_file
import torch_model
from pytorch_baseline import configure, is_out_of_memory, parse_arguments, table_of

SMALL = dict(vocab=301, vocab_padded=320, dim=32, heads=2, head_dim=16, layers=2, ffn=24, experts=4, top=2, seq=16)


def small_config(low=torch.float32):
    c = moe_model.make_config("narrow", low=low, attention="math")
    vars(c).update(SMALL)
    return c


def oracle_config():
    constants = dict(capacity_factor=1.0, norm_eps=moe_model.NORM_EPS, rope_theta=moe_model.ROPE_THETA)
    return torch_model.Config(**SMALL, **constants)


def batch(seed=0, rows=3):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, SMALL["vocab"], (rows, SMALL["seq"] + 1), generator=generator)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def relative(found, wanted):
    return float((found.float() - wanted.float()).norm() / (wanted.float().norm() + 1e-30))


def trainer(steps=4, routing="own", masters="bf16", low=torch.float32, weights=None):
    c = small_config(low)
    return moe_training.Trainer(c, torch.device("cpu"), "eager", masters, routing, 3, steps, weights=weights)


class Model(unittest.TestCase):
    def check_beside_oracle(self, equal):
        """Against the oracle's plain form, whose gradients are autograd's own."""
        c = small_config()
        p = {name: value.requires_grad_() for name, value in moe_model.make_parameters(c, 1, "cpu").items()}
        tokens, targets = batch()
        coefficient = torch.tensor(0.3)
        found = moe_model.forward(c, p, moe_model.rope_tables(c, "cpu"), tokens, targets, coefficient, equal)
        count = tokens.numel() * c.top
        forced = [torch.arange(count).remainder(c.experts).view(-1, c.top)] * c.layers if equal else None
        choices = []
        wanted, aux = torch_model.losses(oracle_config(), torch_model.Fp32(), p, tokens, targets, choices, forced)
        self.assertAlmostEqual(float(found[1]), float(wanted), places=4)
        self.assertAlmostEqual(float(found[2]), float(aux), places=4)
        kept = [float((slot >= 0).float().mean()) for _, slot, *_ in choices]
        for a, b in zip(found[3].tolist(), kept):
            self.assertAlmostEqual(a, b, places=6)
        ours = torch.autograd.grad(found[0], list(p.values()))
        theirs = torch.autograd.grad(wanted + coefficient * aux, list(p.values()))
        for name, a, b in zip(p, ours, theirs):
            self.assertLess(relative(a, b), 2e-5, name)
        return found[3]

    def test_own_routing_beside_the_oracle(self):
        self.assertLess(float(self.check_beside_oracle(equal=False).min()), 1)  # some are dropped: the harder case

    def test_equal_routing_beside_the_oracle_fills_every_slot(self):
        self.assertEqual(self.check_beside_oracle(equal=True).tolist(), [1, 1])

    def test_padding_columns_get_no_gradient(self):
        c = small_config()
        p = {name: value.requires_grad_() for name, value in moe_model.make_parameters(c, 1, "cpu").items()}
        total, *_ = moe_model.forward(c, p, moe_model.rope_tables(c, "cpu"), *batch(), torch.tensor(0.0), True)
        (gradient,) = torch.autograd.grad(total, [p["head"]])
        self.assertEqual(float(gradient[:, c.vocab :].abs().max()), 0)
        self.assertGreater(float(gradient[:, : c.vocab].abs().max()), 0)

    def test_bf16_stays_near_fp32(self):
        losses = []
        for low in (torch.float32, torch.bfloat16):
            c = small_config(low)
            p = moe_model.make_parameters(c, 1, "cpu")
            tables = moe_model.rope_tables(c, "cpu")
            losses.append(moe_model.forward(c, p, tables, *batch(), torch.tensor(0.0), True)[1])
        self.assertLess(abs(float(losses[0] - losses[1])), 0.02)

    def test_philox_known_answer(self):
        # Philox 4x32-10 of counter 0 and key 0, from the published test vectors.
        words = moe_model.philox(0, 0, 0, 0, 4, "cpu").tolist()
        self.assertEqual(words, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8])

    def test_parameter_count_of_the_reference(self):
        table = moe_model.parameter_table(moe_model.make_config("moe-4b"))
        self.assertEqual(len(table), 87)
        self.assertEqual(sum(matrix for _, _, matrix, _ in table.values()), 50)
        numbers = [torch.Size(shape).numel() for shape, *_ in table.values()]
        self.assertEqual(sum(numbers), 4386551808)
        self.assertEqual(moe_model.model_flops_per_token(moe_model.make_config("moe-4b")), 9991028736)


class Steps(unittest.TestCase):
    def test_update_is_adamw(self):
        ours = trainer()
        theirs = {name: value.detach().clone().requires_grad_() for name, value in ours.p.items()}
        groups = [{"params": [theirs[n] for n in theirs if ours.table[n][3] == d], "weight_decay": 0.1 if d else 0.0}
                  for d in (True, False)]
        optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.999), eps=1e-8)
        for step in range(3):
            gradients, _ = ours.gradients(*batch(step))
            for value, gradient in zip(theirs.values(), gradients):
                value.grad = gradient.clone()
            ours.apply(gradients)
            optimizer.step()
        for name, value in theirs.items():
            self.assertLess(relative(ours.p[name].detach(), value.detach()), 1e-6, name)

    def test_numbers_of_the_steps(self):
        numbers = moe_training.step_numbers(3, "cpu")
        for found, wanted in zip(numbers[2].tolist(), (1e-2 * (1 - 2 / 10000), 3e-4, 1 - 0.9**3, 1 - 0.999**3)):
            self.assertAlmostEqual(found / wanted, 1, places=6)

    def test_losses_fall(self):
        for masters in ("bf16", "fp32"):
            with self.subTest(masters):
                ours = trainer(steps=30, low=torch.bfloat16, masters=masters)
                losses = [float(ours.step(*batch())[0]) for _ in range(30)]
                self.assertLess(losses[-1], losses[0] - 0.2)

    def test_report_presupposes_the_dtypes(self):
        ours = trainer(low=torch.bfloat16)
        self.assertEqual(ours.check()[1], {"torch.bfloat16": 10, "torch.float32": 7})
        ours.p["head"] = ours.p["head"].float()
        with self.assertRaises(moe_training.Mismatch):
            ours.check()

    def test_imported_weights_are_used(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "w.safetensors")
            made = moe_model.make_parameters(small_config(), 7, "cpu")
            tensor_file.write(path, made, {"holds": "weights"})
            ours = trainer(weights=tensor_file.read(path, made))
            for name, value in made.items():
                self.assertTrue(torch.equal(value, ours.p[name]), name)
            self.assertFalse(torch.equal(trainer().p["embed"], ours.p["embed"]))


class Files(unittest.TestCase):
    def test_round_trip_and_the_oracles_reader(self):
        import safetensors_file

        tensors = {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor([1.5, -2], dtype=torch.bfloat16),
                   "c": torch.tensor(3.0), "d": torch.zeros(0, 4)}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.safetensors")
            tensor_file.write(path, tensors, {"holds": "this"})
            for found in (dict(tensor_file.read(path)), safetensors_file.read(path)):
                self.assertEqual(list(found), list(tensors))
                for name, value in tensors.items():
                    self.assertEqual((found[name].dtype, found[name].shape), (value.dtype, value.shape))
                    self.assertTrue(torch.equal(found[name], value), name)
            with self.assertRaises(KeyError):
                dict(tensor_file.read(path, ["e"]))


class Kernels(unittest.TestCase):
    def test_names(self):
        for name, wanted in (("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm"),
                             ("sm90_xmma_gemm_f32f32_f32f32_f32_nn_n", "router_gemm"),
                             ("triton_tem_fused_bmm_12", "gemm"),
                             ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention_forward"),
                             ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16", "attention_backward"),
                             ("void pytorch_flash::flash_fwd_kernel<..>", "attention_forward"),
                             ("void pytorch_flash::flash_bwd_dot_do_o_kernel<..>", "attention_backward"),
                             ("Memcpy DtoD (Device -> Device)", "copy"), ("triton_poi_fused_add_mul_3", "other")):
            self.assertEqual(kernel_categories.category(name), wanted, name)
        self.assertEqual(kernel_categories.category("triton_poi_fused_add_mul_3", True), "optimizer")

    def test_family_that_ran(self):
        self.assertEqual(kernel_categories.attention_family(["void pytorch_flash::flash_fwd_kernel"]), ["flash"])
        self.assertEqual(kernel_categories.attention_family(["cudnn_sdpa_flash_fprop"]), ["cudnn"])
        self.assertEqual(kernel_categories.attention_family(["gemm"]), ["none"])

    def test_regions_and_waits_are_no_kernels(self):
        from torch.autograd import DeviceType

        def event(name, device=DeviceType.CUDA, annotation=False):
            return types.SimpleNamespace(name=name, device_type=device, is_user_annotation=annotation,
                                         time_range=types.SimpleNamespace(elapsed_us=lambda: 1500.0))

        events = [event("gemm"), event("aten::mm", DeviceType.CPU), event("region", annotation=True),
                  event("## Call CompiledFxGraph ##"), event("Context Sync"), event("Memset (Device)")]
        run = types.SimpleNamespace(events=lambda: events)
        self.assertEqual(measuring.kernels_of(run), [("gemm", 1.5), ("Memset (Device)", 1.5)])

    def test_summary_adds_up(self):
        found = kernel_categories.summary([("gemm_a", 2.0, False), ("gemm_a", 3.0, False), ("x", 1.0, True)], top=1)
        self.assertEqual(found["total_ms"], 6)
        self.assertEqual((found["by_category_ms"]["gemm"], found["by_category_ms"]["optimizer"]), (5, 1))
        self.assertEqual(found["top"], [{"name": "gemm_a", "category": "gemm", "ms": 5.0, "launches": 2}])
        self.assertIn("6.0 = gemm 5.0, ", kernel_categories.text_of(found))


class CommandLine(unittest.TestCase):
    def run_baseline(self, *words):
        return subprocess.run([sys.executable, os.path.join(BASELINE, "pytorch_baseline.py"), *words], text=True,
                              capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def write_shard(self, folder):
        import struct

        path = os.path.join(folder, "s.tok")
        ids = [i * 37 % SMALL["vocab"] for i in range(400)]
        with open(path, "wb") as file:
            file.write(struct.pack("<4sIIIQ", b"TOK1", 1, 1, SMALL["vocab"], len(ids)) + struct.pack("<400H", *ids))
        return path

    def test_steps_and_gradients(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "g.safetensors")
            sets = [w for key, value in SMALL.items() for w in ("--set", f"{key}={value}")]
            words = "--preset narrow --policy fp32 --tier eager --device cpu --batch 2 --steps 5 --warmup 2".split()
            done = self.run_baseline("--shard", self.write_shard(folder), *words, *sets, "--export-gradients", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            row = json.loads(done.stdout.splitlines()[0])
            self.assertEqual((row["steps"], len(row["losses"]), len(row["step_ms"]), row["kept_mean"]), (3, 5, 3, 1))
            tensors = dict(tensor_file.read(out))
            names = set(moe_model.parameter_table(small_config()))
            self.assertEqual(set(tensors), names | {"loss", "cross_entropy", "aux"})
            self.assertEqual(float(tensors["cross_entropy"]), row["losses"][0])
            self.assertIn("| eager | fp32 | math | equal | 2 |", done.stdout)

    def test_wrong_arguments(self):
        for words, text in ((["--warmup", "40"], "less than --steps"), (["--steps", "0"], "--export-gradients"),
                            (["--policy", "fp32", "--masters", "fp32"], "autocast"),
                            (["--device", "cpu", "--attention", "flash"], "math alone"),
                            (["--batch", "0"], "at least 1"), (["--tier", "fast"], "invalid choice"),
                            (["--batch", "1", "2", "--export-gradients", "x"], "one batch"),
                            (["--device", "cpu", "--set", "width=3"], "expected KEY=NUMBER")):
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as said:
                with self.assertRaises(SystemExit) as ended:
                    configure(parse_arguments(["--shard", "none.tok", *words]))
                self.assertEqual(ended.exception.code, 2)
                self.assertIn(text, said.getvalue())

    def test_shards_that_are_too_short(self):
        words = "--preset narrow --tier eager --device cpu --batch 1 --steps 2 --warmup 1 --set seq=400".split()
        with tempfile.TemporaryDirectory() as folder:
            path = self.write_shard(folder)
            done = self.run_baseline("--shard", path, *words)
            self.assertEqual((done.returncode, done.stderr), (1, f"{path}: 400 ids, a window takes 401\n"))
            os.truncate(path, 24 + 2 * 399)
            done = self.run_baseline("--shard", path, *words)
            self.assertEqual((done.returncode, done.stderr), (1, f"{path}: 399 ids, 400 by its header\n"))

    def test_what_counts_as_out_of_memory(self):
        self.assertTrue(is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")))
        self.assertTrue(is_out_of_memory(RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling")))
        self.assertFalse(is_out_of_memory(RuntimeError("shape mismatch")))

    def test_out_of_memory_is_a_row_of_the_table(self):
        args = parse_arguments(["--shard", "x", "--tier", "eager"])
        row = {"tier": args.tier, "masters": args.masters, "attention": args.attention, "routing": "own", "batch": 16,
               "error": "out of memory"}
        self.assertIn("| eager | bf16 | cudnn | own | 16 | out of memory |", table_of([row]))


if __name__ == "__main__":
    unittest.main()
