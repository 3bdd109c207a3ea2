"""The oracle and the opponent of stepc: torch_model.py run from the command line.

    tiny_torch.py oracle --config c.json --input in.safetensors --output out.safetensors [--set key=value ...]
    tiny_torch.py bench  --config c.json [--rounds N] [--set key=value ...]
    tiny_torch.py train  --config c.json --text FILE [--set key=value ...]

`oracle` reads parameters and `tokens`, `targets` i32[S, B, T]; takes S optimizer steps and writes, for step s, the
losses, `s.grad.NAME`, `s.param.NAME`, `s.m.NAME`, `s.v.NAME` and the routing `s.expert.L`, `s.slot.L`, `s.count.L`.
Where the input holds `s.expert.L` i32[N, K], that is how tokens are routed; `s.given_away.L` f32[N] is how far the
probabilities of its experts are from the largest ones.
`bench` is the opponent in speed. It prints one JSON line when it is ready, then one for each line that it reads:
"round [FORM...]" answers tokens per second of a training step by form (fp32, bf16), "product SIZE [FORM...]" GFLOP/s
of a square product; anything else ends it. So another program can take turns with it.
`train` trains on the bytes of a file and reports the held-out loss: the study from which a preset's numbers come.
"""

import argparse
import json
import os
import sys
import time

import torch

import safetensors_file
from torch_model import Bf16, Exact, Fp32, Trainer, load_config, losses, parameter_shapes, random_parameters


def run_oracle(config, args):
    given = safetensors_file.read(args.input)
    dtype = torch.float64 if args.arithmetic == "f64" else torch.float32
    parameters = {name: given[name].to(dtype) for name in parameter_shapes(config)}
    trainer = Trainer(config, Fp32() if config.precision == "fp32" else Exact(dtype), parameters)
    written = {}
    for s in range(given["tokens"].shape[0]):
        choices, forced = [], None
        if f"{s}.expert.0" in given:
            forced = [given[f"{s}.expert.{layer}"].long() for layer in range(config.layers)]
        ce, aux, grads = trainer.step(given["tokens"][s].long(), given["targets"][s].long(), choices, forced)
        written[f"{s}.loss"], written[f"{s}.aux"] = ce.float(), aux.float()
        for name, grad in grads.items():
            kept = {"grad": grad, "param": trainer.p[name].detach(), "m": trainer.m[name], "v": trainer.v[name]}
            for key, tensor in kept.items():
                written[f"{s}.{key}.{name}"] = tensor.float().clone()  # the next step changes them in place
        for layer, (chosen, slot, count, given_away) in enumerate(choices):
            written[f"{s}.given_away.{layer}"] = given_away.float()
            for key, tensor in (("expert", chosen), ("slot", slot), ("count", count)):
                written[f"{s}.{key}.{layer}"] = tensor.to(torch.int32)
    safetensors_file.write(args.output, written)


def median_seconds(run, count, clock):
    seconds = []
    for _ in range(count):
        begin = clock()
        run()
        seconds.append(clock() - begin)
    return sorted(seconds)[count // 2]


class Opponent:
    """What `bench` measures: training steps in tokens per second, square products in GFLOP/s."""

    forms = {"fp32": (Fp32, torch.float32), "bf16": (Bf16, torch.bfloat16)}

    def __init__(self, config, steps_per_round, clock):
        self.config, self.count, self.clock, self.trainers = config, steps_per_round, clock, {}
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(config.vocab, (config.batch, config.seq + 1), generator=generator)
        self.tokens, self.targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def round(self, form):
        if form not in self.trainers:  # the first steps choose oneDNN kernels and fill allocators
            policy = self.forms[form][0]()
            self.trainers[form] = Trainer(self.config, policy, random_parameters(self.config, self.config.seed))
            median_seconds(lambda: self.trainers[form].step(self.tokens, self.targets), 2, self.clock)
        step = lambda: self.trainers[form].step(self.tokens, self.targets)
        return self.tokens.numel() / median_seconds(step, self.count, self.clock)

    def product(self, form, size):
        a, b = (torch.rand(size, size).to(self.forms[form][1]) for _ in range(2))
        torch.matmul(a, b)
        return 2e-9 * size**3 / median_seconds(lambda: torch.matmul(a, b), self.count, self.clock)


def run_bench(config, args):
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[args.clock]
    opponent = Opponent(config, args.steps_per_round, clock)
    commands = ["round"] * args.rounds
    if not commands:
        for form in opponent.forms:
            opponent.round(form)
        ready = {"ready": list(opponent.forms), "torch": torch.__version__, "threads": torch.get_num_threads()}
        print(json.dumps(ready), flush=True)
        commands = sys.stdin
    for line in commands:
        command, *words = line.split() or [""]
        size = [int(word) for word in words if word.isdigit()]
        forms = [word for word in words if not word.isdigit()] or list(opponent.forms)
        if command == "round":
            answer = {form: opponent.round(form) for form in forms}
        elif command == "product":
            answer = {form: opponent.product(form, *size) for form in forms}
        else:
            break
        print(json.dumps(answer), flush=True)


@torch.no_grad()
def held_out_loss(config, policy, p, ids, batches, device):
    """Mean loss over windows spread evenly over `ids`, at the training capacity."""
    span = (len(ids) - config.seq - 1) // (batches * config.batch)
    total = 0.0
    for b in range(batches):
        starts = [(b * config.batch + row) * span for row in range(config.batch)]
        rows = torch.stack([ids[s : s + config.seq + 1] for s in starts]).to(device)
        total += float(losses(config, policy, p, rows[:, :-1], rows[:, 1:], [])[0])
    return total / batches


def run_train(config, args):
    with open(args.text, "rb") as file:
        ids = torch.tensor(list(file.read()), dtype=torch.int64)
    cut = int(len(ids) * 0.95)
    train, held = ids[:cut], ids[cut:]
    policy = {"exact": Exact(), "fp32": Fp32(), "bf16": Bf16()}[args.form]
    trainer = Trainer(config, policy, random_parameters(config, config.seed), args.device)
    generator = torch.Generator().manual_seed(config.seed)
    begin, recent = time.perf_counter(), []
    for step in range(config.steps):
        starts = torch.randint(len(train) - config.seq - 1, (config.batch,), generator=generator)
        rows = torch.stack([train[s : s + config.seq + 1] for s in starts.tolist()]).to(args.device)
        recent.append(trainer.step(rows[:, :-1], rows[:, 1:])[0])
        if (step + 1) % args.every == 0 or step + 1 == config.steps:
            loss = float(torch.stack(recent).mean())
            held_loss = held_out_loss(config, policy, trainer.p, held, args.held_batches, args.device)
            seconds = time.perf_counter() - begin
            rate = (step + 1) * config.batch * config.seq / seconds
            print(f"{args.label} step {step + 1} train {loss:.4f} held-out {held_loss:.4f} {rate:.0f} tok/s", flush=True)
            recent = []


def main():
    parser = argparse.ArgumentParser(description="The model by hand in PyTorch: oracle and opponent of stepc.")
    parser.add_argument("command", choices=["oracle", "bench", "train"])
    parser.add_argument("--config", required=True, help="JSON of the model and the training run, as stepc writes it")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--input")
    parser.add_argument("--output")
    parser.add_argument("--arithmetic", choices=["f32", "f64"], default="f32")
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds instead of reading stdin")
    parser.add_argument("--steps-per-round", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="what bench measures")
    parser.add_argument("--text")
    parser.add_argument("--form", choices=["exact", "fp32", "bf16"], default="exact")
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--held-batches", type=int, default=16)
    parser.add_argument("--label", default="")
    parser.add_argument("--set", nargs="*", default=[], metavar="key=value", help="changes to the configuration")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    config = load_config(args.config, args.set)
    {"oracle": run_oracle, "bench": run_bench, "train": run_train}[args.command](config, args)


if __name__ == "__main__":
    main()
