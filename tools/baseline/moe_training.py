"""A training step of moe_model in one of PyTorch's tiers, and what a report presupposes of it.

Nothing in a step waits for the device: the numbers of every step lie there before the first, and the losses stay.
"""

import contextlib
import math

import torch

from moe_model import forward, make_parameters, parameter_table, rope_tables

TIERS = {"eager": None, "default": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune"}
GRAPH_TIERS = ("reduce-overhead", "max-autotune")
LR, BETA1, BETA2, EPS, DECAY = 3e-4, 0.9, 0.999, 1e-8, 0.1
AUX_COEFFICIENT, AUX_HORIZON = 1e-2, 10000


class Mismatch(Exception):
    """The model is not the one that a report would name."""


def step_numbers(count, device):
    """[count, 4]: of every step the balance coefficient, the learning rate and both bias corrections."""
    rows = [[AUX_COEFFICIENT * max(0.0, 1 - step / AUX_HORIZON), LR, 1 - BETA1 ** (step + 1), 1 - BETA2 ** (step + 1)]
            for step in range(count)]
    return torch.tensor(rows, dtype=torch.float32).to(device)


def loss_of(c, p, tables, tokens, targets, numbers, equal):
    return forward(c, p, tables, tokens, targets, numbers[0], equal)


def update(parameters, gradients, first, second, decays, numbers):
    """AdamW on low-precision masters: arithmetic in fp32, rounded once. Compiled, so one pass over memory."""
    _, lr, correction1, correction2 = numbers.unbind()
    for p, g, m, v, decay in zip(parameters, gradients, first, second, decays):
        g = g.float()
        m.mul_(BETA1).add_(g, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        wide = p.float() * (1 - lr * decay)
        p.copy_(wide - lr * (m / correction1) / (torch.sqrt(v / correction2) + EPS))


def copy_into(made, values):
    """`values` yields (name, tensor) of every parameter."""
    for name, value in values:
        if value.shape != made[name].shape:
            raise Mismatch(f"{name}: {list(value.shape)}, expected {list(made[name].shape)}")
        made[name].copy_(value)


class Trainer:
    """Parameters, moments, and `step`. `weights`: pairs of (name, tensor) instead of the initial values of `seed`."""

    def __init__(self, c, device, tier, masters, routing, batch, steps, seed=1, weights=None):
        self.c, self.device, self.masters, self.equal = c, device, masters, routing == "equal"
        self.count = 0
        self.table = parameter_table(c)
        made = make_parameters(c, seed, device)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # of its temporaries
            torch.cuda.reset_peak_memory_stats()
        if weights is not None:
            copy_into(made, weights)
        if masters == "fp32":
            made = {name: value.float() for name, value in made.items()}
        self.p = {name: value.requires_grad_() for name, value in made.items()}
        self.numbers = step_numbers(steps, device)
        self.tables = rope_tables(c, device)
        # What changes from step to step is copied to one place: a CUDA graph is recorded for the places it saw.
        self.now = self.numbers[0].clone()
        self.ids = [torch.zeros(batch, c.seq, dtype=torch.int64, device=device) for _ in range(2)]
        self.loss, self.update = loss_of, update
        mode = TIERS[tier]
        if mode:
            self.loss = torch.compile(loss_of, mode=mode, dynamic=False, fullgraph=True)
            self.update = torch.compile(update, dynamic=False, fullgraph=True)
        if tier in GRAPH_TIERS:  # else each replay begins by copying every weight into memory of the graph's own
            for tensor in (*self.p.values(), *self.tables, *self.ids, self.now):
                torch._dynamo.mark_static_address(tensor)
        self.make_optimizer()

    def make_optimizer(self):
        if self.masters == "fp32":
            groups = [{"params": [self.p[n] for n in self.table if self.table[n][3] == decayed],
                       "weight_decay": DECAY if decayed else 0.0} for decayed in (True, False)]
            fused = {"fused": True} if self.device.type == "cuda" else {}
            self.optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS, **fused)
            return
        self.first = [torch.zeros_like(t, dtype=torch.float32) for t in self.p.values()]
        self.second = [torch.zeros_like(t, dtype=torch.float32) for t in self.p.values()]
        self.decays = [DECAY if self.table[n][3] else 0.0 for n in self.p]

    def autocast(self):
        if self.masters == "fp32":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def gradients(self, tokens, targets):
        """Gradients in the parameters' order, then cross-entropy, balance loss and kept shares. With CUDA graphs all
        of them are valid until the next step begins."""
        for place, value in zip((self.now, *self.ids), (self.numbers[self.count], tokens, targets)):
            place.copy_(value)
        if hasattr(torch, "compiler"):
            torch.compiler.cudagraph_mark_step_begin()
        with self.autocast():
            total, *told = self.loss(self.c, self.p, self.tables, *self.ids, self.now, self.equal)
        # Not backward(): that would clone what a CUDA graph owns into .grad.
        return torch.autograd.grad(total, list(self.p.values())), [t.detach() for t in told]

    @torch.no_grad()
    def apply(self, gradients):
        self.count += 1
        if self.masters == "fp32":
            for p, gradient in zip(self.p.values(), gradients):
                p.grad = gradient
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        else:
            self.update(list(self.p.values()), list(gradients), self.first, self.second, self.decays, self.now)

    def step(self, tokens, targets):
        gradients, (cross_entropy, _, kept) = self.gradients(tokens, targets)
        self.apply(gradients)
        return cross_entropy, kept

    def check(self):
        """Parameter count and dtypes, which must be those of the policy."""
        count = sum(t.numel() for t in self.p.values())
        expected = sum(math.prod(shape) for shape, *_ in self.table.values())
        found = {}
        for t in self.p.values():
            found[str(t.dtype)] = found.get(str(t.dtype), 0) + 1
        wanted = {}
        for _, _, matrix, _ in self.table.values():
            dtype = str(self.c.low if matrix and self.masters != "fp32" else torch.float32)
            wanted[dtype] = wanted.get(dtype, 0) + 1
        if count != expected or found != wanted:
            raise Mismatch(f"no report: {count} parameters (expected {expected}), {found} (expected {wanted})")
        return count, found
