#!/usr/bin/env python3
"""The opponent: stepc's reference model (docs/design.md) as strong as plain PyTorch allows, on one CUDA device.

Same parameters (stepc's Philox streams, made on the device), same shard and windows, same precision policy, and the
same step count. One process measures one tier; rows are JSON lines, a Markdown table follows. A row is printed only
if the parameter count and the dtypes are those of the policy. Running out of memory is a row too.

  pytorch_baseline.py --shard english-train.tok --tier default --batch 16 --steps 60 --routing equal
"""

import argparse
import json
import math
import os
import statistics
import struct
import sys
import time
import types

# Inductor's disk caches can hand out the graph of the other attention: a tier compiles its own. Read at import.
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")

import torch
import torch.nn.functional as F

PRESETS = {
    "moe-4b": dict(vocab=50257, vocab_padded=50432, dim=3072, heads=24, head_dim=128, layers=12, ffn=4096, experts=8,
                   top=2, seq=2048),
    "narrow": dict(vocab=50257, vocab_padded=50432, dim=512, heads=4, head_dim=128, layers=2, ffn=512, experts=8,
                   top=2, seq=256),
}
TIERS = {"eager": None, "default": "default", "reduce-overhead": "reduce-overhead",
         "max-autotune": "max-autotune"}
NORM_EPS, ROPE_THETA = 1e-5, 10000.0
LR, BETA1, BETA2, EPS, DECAY = 3e-4, 0.9, 0.999, 1e-8, 0.1
AUX_COEFFICIENT, AUX_HORIZON = 1e-2, 10000


class Config(types.SimpleNamespace):
    """The numbers of a preset as attributes."""


# ---- parameters: Philox 4x32-10, a stream a name, as stepc's init program ------------------------------------------


def parameter_table(c):
    """name -> (shape, fan_in or 0 for ones, is a bf16 matrix, is decayed)"""
    table = {"embed": ([c.vocab, c.dim], c.dim, True, True)}
    for layer in range(c.layers):
        b = f"blocks.{layer}."
        table[b + "attn_norm"] = ([c.dim], 0, False, False)
        table[b + "qkv"] = ([c.dim, 3 * c.dim], c.dim, True, True)
        table[b + "attn_out"] = ([c.dim, c.dim], c.dim, True, True)
        table[b + "ffn_norm"] = ([c.dim], 0, False, False)
        table[b + "router"] = ([c.dim, c.experts], c.dim, False, True)
        table[b + "gate_up"] = ([c.experts, c.dim, 2 * c.ffn], c.dim, True, True)
        table[b + "down"] = ([c.experts, c.ffn, c.dim], c.ffn, True, True)
    table["final_norm"] = ([c.dim], 0, False, False)
    table["head"] = ([c.dim, c.vocab_padded], c.dim, True, True)
    return table


def stream_of(name):
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def philox(seed, stream, step, first, count, device):
    """Words first .. first + count (multiples of 4), as int64 below 2^32."""
    mask = 0xFFFFFFFF
    block = torch.arange(first // 4, (first + count) // 4, dtype=torch.int64, device=device)
    counter = [block & mask, block >> 32, torch.full_like(block, step), torch.zeros_like(block)]

    def product(a, multiplier):  # high and low 32 bits of 32 x 32 bits, without overflowing int64
        low = (a & 0xFFFF) * multiplier
        high = (a >> 16) * multiplier
        total = low + ((high & 0xFFFF) << 16)
        return (high >> 16) + (total >> 32), total & mask

    key0, key1 = seed, stream
    for _ in range(10):
        high0, low0 = product(counter[0], 0xD2511F53)
        high1, low1 = product(counter[2], 0xCD9E8D57)
        counter = [high1 ^ counter[1] ^ key0, low1, high0 ^ counter[3] ^ key1, low0]
        key0, key1 = key0 + 0x9E3779B9 & mask, key1 + 0xBB67AE85 & mask
    return torch.stack(counter, 1).flatten()


def make_parameters(c, seed, device):
    """Every parameter as the policy stores it. Made in pieces, so that no large temporary is left behind."""
    chunk = 1 << 24
    made = {}
    for name, (shape, fan_in, matrix, _) in parameter_table(c).items():
        dtype = torch.bfloat16 if matrix else torch.float32
        if not fan_in:
            made[name] = torch.ones(shape, dtype=dtype, device=device)
            continue
        value = torch.empty(math.prod(shape), dtype=dtype, device=device)
        scale = float(torch.tensor(1.0 / math.sqrt(fan_in), dtype=torch.float32))
        for first in range(0, value.numel(), chunk):
            count = min(chunk, value.numel() - first)
            words = philox(seed, stream_of(name), 0, first, (count + 3) // 4 * 4, device)[:count]
            value[first : first + count] = ((words >> 8).float() * 2.0**-24 * 2.0 - 1.0) * scale
        value = value.view(shape)
        if name == "head":
            value[:, c.vocab :] = 0
        made[name] = value
    return made


# ---- data: stepc's TOK1 shards, windows in order -------------------------------------------------------------------


def load_tokens(path):
    with open(path, "rb") as file:
        magic, version, dtype, _, count = struct.unpack("<4sIIIQ", file.read(24))
        if magic != b"TOK1" or version != 1 or dtype != 1:
            raise SystemExit(f"{path}: not a TOK1 shard of 16-bit ids")
        data = torch.frombuffer(bytearray(file.read(2 * count)), dtype=torch.int16)
    return data.to(torch.int32) & 0xFFFF


def window(tokens, position, batch, seq, device):
    windows = (len(tokens) - 1) // seq
    rows = [(position + row) % windows * seq for row in range(batch)]
    ids = torch.stack([tokens[start : start + seq + 1] for start in rows]).to(device, torch.int64)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


# ---- the model -----------------------------------------------------------------------------------------------------


def rows_or_zeros(x, index):
    """Row index[i] of x, zeros where there is none (an index past the end). A mask, not a padded copy of x: inductor
    makes one kernel of it and of what reads it."""
    return torch.where((index < x.shape[0])[..., None], x[index.clamp(max=x.shape[0] - 1)], 0)


class Dispatch(torch.autograd.Function):
    """Rows of x for every expert slot (zeros where it is empty). One-to-one both ways, so that neither direction adds
    floats atomically: the gradient of a token is the sum over its ranks of the gradient of its slots."""

    @staticmethod
    def forward(ctx, x, token_of_slot, slot_of):
        ctx.save_for_backward(slot_of)
        return rows_or_zeros(x, token_of_slot)

    @staticmethod
    def backward(ctx, grad):
        (slot_of,) = ctx.saved_tensors
        return rows_or_zeros(grad, slot_of).float().sum(1).to(grad.dtype), None, None


class Combine(torch.autograd.Function):
    """The output rows of each token's slots, [N, K, D], zeros where the assignment was dropped."""

    @staticmethod
    def forward(ctx, y, slot_of, assignment_of_slot):
        ctx.save_for_backward(assignment_of_slot)
        return rows_or_zeros(y, slot_of)

    @staticmethod
    def backward(ctx, grad):
        (assignment_of_slot,) = ctx.saved_tensors
        return rows_or_zeros(grad.reshape(-1, grad.shape[-1]), assignment_of_slot), None, None


def rms_norm(x, weight):
    wide = x.float()
    return wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + NORM_EPS) * weight


def rope(x, cos, sin):
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(torch.bfloat16)


def route(c, probs, capacity, equal):
    """Chosen experts [N, K], slot of each assignment [N, K] (E*C: dropped), assignment of each slot, counts."""
    tokens = probs.shape[0]
    total = tokens * c.top
    if equal:
        flat = torch.arange(total, device=probs.device) % c.experts
    else:
        flat = torch.sort(probs, dim=-1, descending=True, stable=True).indices[:, : c.top].reshape(-1)
    onehot = F.one_hot(flat, c.experts).to(torch.int32)
    place = (onehot.cumsum(0) - 1).gather(1, flat[:, None]).squeeze(1)
    dead = c.experts * capacity
    slot = torch.where(place < capacity, flat * capacity + place, dead)
    assignment = torch.full((dead + 1,), total, dtype=torch.int64, device=probs.device)
    # Dropped assignments share the spare last place, whose content nobody reads.
    assignment = assignment.scatter(0, slot, torch.arange(total, device=probs.device))[:-1]
    return flat.view(tokens, c.top), slot.view(tokens, c.top), assignment, onehot.sum(0)


def mixture(c, h, p, block, capacity, equal):
    tokens, dim = h.shape
    probs = torch.softmax(h.float() @ p[block + "router"], -1)
    chosen, slot, assignment, count = route(c, probs.detach(), capacity, equal)
    weights = probs.gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True)
    token_of_slot = torch.where(assignment < tokens * c.top, assignment // c.top, tokens)
    x = Dispatch.apply(h, token_of_slot, slot).view(c.experts, capacity, dim)
    gate, up = torch.bmm(x, p[block + "gate_up"]).chunk(2, -1)
    y = (F.silu(gate.float()) * up.float()).to(h.dtype)
    out = torch.bmm(y, p[block + "down"]).view(-1, dim)
    mixed = (weights[:, :, None] * Combine.apply(out, slot, assignment).float()).sum(1)
    fraction = count.float() / (tokens * c.top)
    kept = (slot < c.experts * capacity).float().mean()
    return mixed, c.experts * (fraction * probs.mean(0)).sum(), kept


def forward(c, p, tokens, targets, aux_coefficient, equal):
    batch, length = tokens.shape
    capacity = max(1, math.ceil(batch * length * c.top / c.experts))
    pair = torch.arange(c.head_dim // 2, dtype=torch.float64, device=tokens.device)
    angle = torch.arange(length, dtype=torch.float64, device=tokens.device)[:, None] * ROPE_THETA ** (-2 * pair / c.head_dim)
    cos, sin = torch.cos(angle).float()[:, None], torch.sin(angle).float()[:, None]
    x = F.embedding(tokens.reshape(-1), p["embed"])
    aux, kept = 0.0, []
    for layer in range(c.layers):
        block = f"blocks.{layer}."
        h = rms_norm(x, p[block + "attn_norm"]).to(torch.bfloat16)
        q, k, v = (h @ p[block + "qkv"]).view(batch, length, 3, c.heads, c.head_dim).unbind(2)
        q, k, v = (t.transpose(1, 2) for t in (rope(q, cos, sin), rope(k, cos, sin), v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape)
        x = x + o @ p[block + "attn_out"]
        h = rms_norm(x, p[block + "ffn_norm"]).to(torch.bfloat16)
        mixed, balance, share = mixture(c, h, p, block, capacity, equal)
        x = (x.float() + mixed).to(torch.bfloat16)
        aux = aux + balance
        kept.append(share)
    h = rms_norm(x, p["final_norm"]).to(torch.bfloat16)
    logits = (h @ p["head"])[:, : c.vocab].float()
    cross_entropy = F.cross_entropy(logits, targets.reshape(-1))
    return cross_entropy + aux_coefficient * aux, cross_entropy, torch.stack(kept)


# ---- the step ------------------------------------------------------------------------------------------------------


def update(parameters, gradients, first, second, decays, lr, correction1, correction2):
    """AdamW on bf16 masters: arithmetic in fp32, rounded to nearest once. Compiled, so one pass over memory."""
    for p, g, m, v, decay in zip(parameters, gradients, first, second, decays):
        g = g.float()
        m.mul_(BETA1).add_(g, alpha=1 - BETA1)
        v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
        wide = p.float() * (1 - lr * decay)
        p.copy_(wide - lr * (m / correction1) / (torch.sqrt(v / correction2) + EPS))


class Trainer:
    def __init__(self, c, args, device):
        self.c, self.args, self.count = c, args, 0
        mode = TIERS[args.tier]
        made = make_parameters(c, args.seed, device)
        self.table = parameter_table(c)
        if args.masters == "fp32":
            made = {name: value.float() for name, value in made.items()}
        self.p = {name: value.requires_grad_() for name, value in made.items()}
        self.loss = forward
        self.update = update
        if mode:
            self.loss = torch.compile(forward, mode=mode, dynamic=False, fullgraph=True)
            self.update = torch.compile(update, dynamic=False)
        if args.masters == "bf16":
            self.first = [torch.zeros_like(t, dtype=torch.float32) for t in self.p.values()]
            self.second = [torch.zeros_like(t, dtype=torch.float32) for t in self.p.values()]
        else:
            groups = [{"params": [self.p[n] for n in self.table if self.table[n][3] == decayed],
                       "weight_decay": DECAY if decayed else 0.0} for decayed in (True, False)]
            self.optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=EPS, fused=True)

    def gradients(self, tokens, targets):
        c = self.c
        coefficient = torch.tensor(AUX_COEFFICIENT * max(0.0, 1 - self.count / AUX_HORIZON), device=tokens.device)
        torch.compiler.cudagraph_mark_step_begin()
        autocast = torch.autocast("cuda", torch.bfloat16, enabled=self.args.masters == "fp32")
        with autocast:
            total, cross_entropy, kept = self.loss(c, self.p, tokens, targets, coefficient, self.args.routing == "equal")
        total.backward()
        return cross_entropy.detach(), kept.detach()

    def step(self, tokens, targets):
        cross_entropy, kept = self.gradients(tokens, targets)
        cross_entropy, kept = cross_entropy.clone(), kept.clone()
        self.count += 1
        with torch.no_grad():
            if self.args.masters == "bf16":
                device = tokens.device
                numbers = [torch.tensor(x, dtype=torch.float32, device=device)
                           for x in (LR, 1 - BETA1**self.count, 1 - BETA2**self.count)]
                decays = [DECAY if self.table[n][3] else 0.0 for n in self.p]
                self.update(list(self.p.values()), [t.grad for t in self.p.values()], self.first, self.second, decays,
                            *numbers)
            else:
                self.optimizer.step()
        for t in self.p.values():
            t.grad = None
        return cross_entropy, kept

    def check(self):
        """What a report presupposes: the parameter count and the dtypes of the policy."""
        count = sum(t.numel() for t in self.p.values())
        expected = sum(math.prod(shape) for shape, *_ in self.table.values())
        by_dtype = {}
        for t in self.p.values():
            by_dtype[str(t.dtype)] = by_dtype.get(str(t.dtype), 0) + 1
        matrices = sum(matrix for _, _, matrix, _ in self.table.values())
        wanted = {"torch.bfloat16": matrices, "torch.float32": len(self.table) - matrices}
        if self.args.masters == "fp32":
            wanted = {"torch.float32": len(self.table)}
        if count != expected or by_dtype != wanted:
            raise SystemExit(f"no report: {count} parameters (expected {expected}), {by_dtype} (expected {wanted})")
        return count, by_dtype


def attention_that_ran(trainer, tokens, targets):
    """Names of the attention kernels in one profiled step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as run:
        trainer.step(tokens, targets)
        torch.cuda.synchronize()
    names = {event.key for event in run.key_averages()}
    found = {"cudnn": any("cudnn" in n and ("sdpa" in n or "fprop" in n or "flash" in n) for n in names),
             "flash": any("flash_fwd" in n or "pytorch_flash" in n for n in names)}
    return [name for name, ran in found.items() if ran] or ["other"]


def graphs_recorded():
    """How many CUDA graphs inductor recorded; None where it cannot be asked."""
    try:
        from torch._inductor.cudagraph_trees import get_container

        manager = get_container(torch.cuda.current_device()).tree_manager
        return 0 if manager is None else sum(1 for _ in manager.ids_to_funcs)
    except Exception:
        return None


def measure(c, args, batch, device, tokens):
    torch.cuda.reset_peak_memory_stats()
    row = {"side": "pytorch", "torch": torch.__version__, "card": torch.cuda.get_device_name(), "preset": args.preset,
           "tier": args.tier, "masters": args.masters, "attention": args.attention, "routing": args.routing,
           "batch": batch, "seq": c.seq}
    begun = time.perf_counter()
    trainer = Trainer(c, args, device)
    row["parameters"], row["dtypes"] = trainer.check()
    losses, times, shares, position = [], [], [], 0
    torch.cuda.synchronize()
    row["made_s"] = time.perf_counter() - begun
    for step in range(args.steps):
        ids, targets = window(tokens, position, batch, c.seq, device)
        position += batch
        torch.cuda.synchronize()
        start = time.perf_counter()
        cross_entropy, kept = trainer.step(ids, targets)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(float(cross_entropy))
        shares.append(kept.tolist())
        if args.progress:
            print(f"step {step + 1}/{args.steps}: loss {losses[-1]:.4f}, {times[-1] * 1e3:.1f} ms", file=sys.stderr)
    timed = times[args.warmup :]
    median = statistics.median(timed)
    flops = 6 * (c.layers * (4 * c.dim**2 + c.dim * c.experts + c.top * 3 * c.dim * c.ffn) + c.dim * c.vocab_padded)
    flops += 12 * c.layers * c.dim * c.seq
    quarters = statistics.quantiles(timed, n=4) if len(timed) > 1 else [median] * 3
    row.update(steps=len(timed), first_step_s=times[0], median_ms=median * 1e3, low_ms=quarters[0] * 1e3,
               high_ms=quarters[2] * 1e3, tokens_per_s=batch * c.seq / median,
               mfu=batch * c.seq / median * flops / args.peak, peak_bytes=torch.cuda.max_memory_allocated(),
               reserved_bytes=torch.cuda.max_memory_reserved(), losses=losses, kept_first=shares[0], kept_last=shares[-1],
               step_ms=[t * 1e3 for t in times])
    if args.name_kernels:
        row["attention_ran"] = attention_that_ran(trainer, ids, targets)
    if args.tier in ("reduce-overhead", "max-autotune"):
        row["cuda_graphs"] = graphs_recorded()
    return row


def table_of(rows):
    lines = ["| tier | masters | routing | batch | tokens/s | ms/step (quartiles) | MFU | peak GiB | first step s |",
             "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        head = f"| {r['tier']} | {r['masters']} | {r['routing']} | {r['batch']} | "
        if "error" in r:
            lines.append(head + f"{r['error']} | | | | |")
        else:
            lines.append(head + f"{r['tokens_per_s']:.0f} | {r['median_ms']:.1f} ({r['low_ms']:.1f}-{r['high_ms']:.1f}) | "
                         f"{100 * r['mfu']:.1f}% | {r['peak_bytes'] / 2**30:.1f} | {r['first_step_s']:.1f} |")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=PRESETS, default="moe-4b")
    parser.add_argument("--shard", required=True, help="a TOK1 file")
    parser.add_argument("--tier", choices=TIERS, default="default")
    parser.add_argument("--masters", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--attention", choices=["cudnn", "flash"], default="cudnn")
    parser.add_argument("--routing", choices=["own", "equal"], default="equal",
                        help="equal: assignment j goes to expert j modulo their number, which fills every slot")
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peak", type=float, default=989.4e12, help="dense bf16 FLOP/s that MFU is of")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a number of the preset")
    parser.add_argument("--json", help="append the rows to this file")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--name-kernels", action="store_true", help="profile one step more: which attention ran")
    args = parser.parse_args()
    if args.steps <= args.warmup:
        parser.error(f"--steps {args.steps} leaves nothing after --warmup {args.warmup}")
    return args


def main():
    args = parse_arguments()
    c = Config(**PRESETS[args.preset])
    for text in args.set:
        key, _, value = text.partition("=")
        if not hasattr(c, key):
            raise SystemExit(f"--set {text}: expected one of {', '.join(vars(c))}")
        setattr(c, key, int(value))
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device")
    torch.backends.cuda.enable_cudnn_sdp(args.attention == "cudnn")
    torch.backends.cuda.enable_flash_sdp(args.attention == "flash")
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_math_sdp(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device("cuda")
    tokens = load_tokens(args.shard)
    rows = []
    for batch in args.batch:
        try:
            row = measure(c, args, batch, device, tokens)
        except torch.cuda.OutOfMemoryError as error:
            row = {"side": "pytorch", "tier": args.tier, "masters": args.masters, "routing": args.routing, "batch": batch,
                   "error": "out of memory", "detail": str(error).splitlines()[0]}
        rows.append(row)
        text = json.dumps(row)
        print(text, flush=True)
        if args.json:
            with open(args.json, "a") as file:
                file.write(text + "\n")
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    print(table_of(rows))


if __name__ == "__main__":
    main()
