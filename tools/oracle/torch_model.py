"""The model of docs/design.md section 3 by hand in PyTorch: configuration, three numeric policies, losses, AdamW.

One body, three policies: Exact follows stepc's rounding points, Fp32 and Bf16 are what a PyTorch user writes.
"""

import functools
import json
import math

import torch
import torch.nn.functional as F


# ---- configuration ------------------------------------------------------------------------------------------------


class Config(dict):
    __getattr__ = dict.__getitem__


def load_config(path, overrides):
    with open(path) as file:
        config = Config(json.load(file))
    for text in overrides:
        key, value = text.split("=", 1)
        if key not in config:
            raise SystemExit(f"unknown key {key}")
        config[key] = type(config[key])(float(value)) if not isinstance(config[key], str) else value
    return config


def is_dense(config):
    return config.experts == 1


def parameter_shapes(config):
    """Name -> (shape, fan_in or 0 for ones, is a bf16 matrix), in the order of the parameter table."""
    dim, ffn, experts = config.dim, config.ffn, config.experts
    shapes = {"embed": ([config.vocab, dim], dim, True)}
    for layer in range(config.layers):
        block = f"blocks.{layer}."
        shapes[block + "attn_norm"] = ([dim], 0, False)
        shapes[block + "qkv"] = ([dim, 3 * dim], dim, True)
        shapes[block + "attn_out"] = ([dim, dim], dim, True)
        shapes[block + "ffn_norm"] = ([dim], 0, False)
        if not is_dense(config):
            shapes[block + "router"] = ([dim, experts], dim, False)
        shapes[block + "gate_up"] = ([experts, dim, 2 * ffn], dim, True)
        shapes[block + "down"] = ([experts, ffn, dim], ffn, True)
    shapes["final_norm"] = ([dim], 0, False)
    shapes["head"] = ([dim, config.vocab_padded], dim, True)
    return shapes


def learning_rate(config, step):
    """Of the update that follows `step` earlier ones."""
    if config.warmup and step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.schedule == "constant":
        return config.lr
    span = max(1, config.steps - config.warmup)
    progress = min(1.0, (step - config.warmup) / span)
    floor = config.final_lr_fraction
    return config.lr * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def aux_coefficient(config, step):
    return config.aux_coefficient * max(0.0, 1 - step / config.aux_horizon) if config.aux_horizon else 0.0


# ---- numeric policies ---------------------------------------------------------------------------------------------


def to_bf16(x):
    return x.to(torch.bfloat16).to(x.dtype)


class RoundBothWays(torch.autograd.Function):
    """A value declared bf16: rounded, and so is its cotangent, once, after all that reads it has added to it."""

    @staticmethod
    def forward(ctx, x):
        return to_bf16(x)

    @staticmethod
    def backward(ctx, grad):
        return to_bf16(grad)


class RoundedMatmul(torch.autograd.Function):
    """Operands are bf16 and so is the cotangent in the two products of the gradient."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        grad = to_bf16(grad)
        return grad @ b.transpose(-1, -2), a.transpose(-1, -2) @ grad


class RoundedAttention(torch.autograd.Function):
    """Causal attention of q, k, v [B, H, T, d]; P and dS are rounded before their products, results are bf16."""

    @staticmethod
    def forward(ctx, q, k, v):
        scale = 1 / math.sqrt(q.shape[-1])
        p = causal_softmax(q @ k.transpose(-1, -2) * scale)
        out = to_bf16(to_bf16(p) @ v)
        ctx.scale = scale
        ctx.save_for_backward(q, k, v, p, out)
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p, out = ctx.saved_tensors
        grad = to_bf16(grad)
        delta = (grad * out).sum(-1, keepdim=True)
        ds = to_bf16(p * (grad @ v.transpose(-1, -2) - delta))
        dq = ds @ k * ctx.scale
        dk = ds.transpose(-1, -2) @ q * ctx.scale
        return to_bf16(dq), to_bf16(dk), to_bf16(to_bf16(p).transpose(-1, -2) @ grad)


@functools.lru_cache(maxsize=None)
def future(length, device):
    return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


def causal_softmax(scores):
    return torch.softmax(scores.masked_fill(future(scores.shape[-1], scores.device), -math.inf), -1)


class Exact:
    """stepc's rounding points. A bf16 value is a wider tensor whose elements are bf16 numbers."""

    store = staticmethod(RoundBothWays.apply)
    wide = staticmethod(lambda x: x)
    matmul = staticmethod(RoundedMatmul.apply)
    attention = staticmethod(RoundedAttention.apply)

    def __init__(self, dtype=torch.float32):
        self.dtype = dtype

    def parameter(self, x, is_matrix):
        return (to_bf16(x) if is_matrix else x).to(self.dtype)

    def updated(self, x, is_matrix):
        return to_bf16(x) if is_matrix else x


class Fp32:
    """Fp32 throughout, as PyTorch runs a model by default."""

    store = staticmethod(lambda x: x)
    wide = staticmethod(lambda x: x)
    matmul = staticmethod(torch.matmul)

    @staticmethod
    def attention(q, k, v):
        return causal_softmax(q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))) @ v

    def parameter(self, x, is_matrix):
        return x.float()

    def updated(self, x, is_matrix):
        return x


class Bf16(Fp32):
    """Matrices, activations and their gradients in bf16; statistics, router, softmax and updates in fp32."""

    store = staticmethod(lambda x: x.to(torch.bfloat16))
    wide = staticmethod(lambda x: x.float())

    @staticmethod
    def attention(q, k, v):
        scores = (q @ k.transpose(-1, -2)).float() * (1 / math.sqrt(q.shape[-1]))
        return causal_softmax(scores).to(torch.bfloat16) @ v

    def parameter(self, x, is_matrix):
        return x.to(torch.bfloat16) if is_matrix else x.float()


# ---- the model ----------------------------------------------------------------------------------------------------


def rms_norm(config, x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.norm_eps) * weight


@functools.lru_cache(maxsize=None)
def rope_tables(head_dim, theta, length, dtype, device):
    pair = torch.arange(head_dim // 2, dtype=torch.float64, device=device)
    frequency = theta ** (-2 * pair / head_dim)
    angle = torch.arange(length, dtype=torch.float64, device=device)[:, None] * frequency
    return torch.cos(angle).to(dtype), torch.sin(angle).to(dtype)


def rope(x, cos, sin):
    """Rotates the adjacent pairs (2p, 2p+1) of x [B, T, H, d]; the tables are [T, d/2]."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def route(config, probs, capacity, forced=None):
    """Choices [N, K], slots [N*K] and the assignment of each slot [E*C] (-1: none), counts before dropping [E]."""
    own = torch.sort(probs, dim=-1, descending=True, stable=True).indices[:, : config.top]
    chosen = own if forced is None else forced
    flat = chosen.reshape(-1)
    onehot = F.one_hot(flat, config.experts).to(torch.int32)
    place = (onehot.cumsum(0) - 1).gather(1, flat[:, None]).squeeze(1)
    slot = torch.where(place < capacity, flat * capacity + place, -1)
    assignment = torch.full((config.experts * capacity + 1,), -1, dtype=torch.int64, device=probs.device)
    # Dropped assignments all land in the spare last place.
    assignment[torch.where(slot >= 0, slot, config.experts * capacity)] = torch.arange(len(slot), device=probs.device)
    return chosen, slot, assignment[:-1], onehot.sum(0)


def gather_rows(x, index):
    """Row n is row index[n] of x, zeros where that is -1."""
    with_zeros = torch.cat((x, x.new_zeros(1, x.shape[1])))
    return with_zeros.index_select(0, torch.where(index < 0, x.shape[0], index))


def experts(policy, x, gate_up, down):
    z = policy.wide(policy.store(policy.matmul(x, gate_up)))
    gate, up = z.chunk(2, -1)
    y = policy.store(F.silu(gate) * up)
    return policy.store(policy.matmul(y, down))


def mixture(config, policy, h, p, block, capacity, choices, forced=None):
    """The routed feed-forward of h [N, D] and the layer's balance loss. `choices` gets what was chosen, and the
    probability that `forced` choices gave away."""
    if is_dense(config):
        y = experts(policy, h[None], p[block + "gate_up"], p[block + "down"])[0]
        return policy.wide(y), 0.0
    tokens, dim = h.shape
    probs = torch.softmax(policy.wide(h) @ p[block + "router"], -1)
    chosen, slot, assignment, count = route(config, probs.detach(), capacity, forced)
    given_away = probs.detach().topk(config.top).values - probs.detach().gather(1, chosen)
    choices.append((chosen, slot, count, given_away.abs().amax(1)))
    weights = probs.gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True)
    repeated = h[:, None].expand(-1, config.top, -1).reshape(-1, dim)
    xe = policy.store(gather_rows(repeated, assignment)).view(config.experts, capacity, dim)
    ye = experts(policy, xe, p[block + "gate_up"], p[block + "down"])
    picked = policy.wide(policy.store(gather_rows(ye.reshape(-1, dim), slot))).view(tokens, config.top, dim)
    fraction = count.to(probs.dtype) / (tokens * config.top)
    return (weights[:, :, None] * picked).sum(1), config.experts * (fraction * probs.mean(0)).sum()


def capacity_of(config, tokens):
    return max(1, math.ceil(config.capacity_factor * tokens * config.top / config.experts))


def attention_block(config, policy, h, p, block, batch, tables):
    qkv = policy.wide_product(h, p[block + "qkv"]).view(batch, -1, 3, config.heads, config.head_dim)
    q, k, v = qkv.unbind(2)
    q, k, v = (policy.store(t).transpose(1, 2) for t in (rope(q, *tables), rope(k, *tables), v))
    out = policy.attention(q, k, v).transpose(1, 2).reshape(h.shape)
    return policy.wide_product(out, p[block + "attn_out"])


def losses(config, policy, p, tokens, targets, choices, forced=None):
    """Mean cross-entropy and the summed balance loss of tokens, targets [B, T]; routed as `forced`, by layer."""
    batch, length = tokens.shape
    capacity = capacity_of(config, batch * length)
    tables = rope_tables(config.head_dim, config.rope_theta, length, p["final_norm"].dtype, tokens.device)
    x = policy.store(F.embedding(tokens.reshape(-1), p["embed"]))
    aux = 0.0
    for layer in range(config.layers):
        block = f"blocks.{layer}."
        wide = policy.wide(x)
        h = policy.store(rms_norm(config, wide, p[block + "attn_norm"]))
        x = policy.store(wide + attention_block(config, policy, h, p, block, batch, tables))
        wide = policy.wide(x)
        h = policy.store(rms_norm(config, wide, p[block + "ffn_norm"]))
        mixed, balance = mixture(config, policy, h, p, block, capacity, choices, forced and forced[layer])
        x = policy.store(wide + mixed)
        aux = aux + balance
    h = policy.store(rms_norm(config, policy.wide(x), p["final_norm"]))
    logits = policy.wide(policy.store(policy.matmul(h, p["head"])))
    if config.vocab < config.vocab_padded:
        logits = logits[:, : config.vocab]
    return F.cross_entropy(logits, targets.reshape(-1)), aux


# A product whose f32 result is used before it is rounded (stepc), or the policy's own product widened.
Exact.wide_product = staticmethod(RoundedMatmul.apply)
Fp32.wide_product = staticmethod(torch.matmul)
Bf16.wide_product = staticmethod(lambda a, b: (a @ b).float())


# ---- training -----------------------------------------------------------------------------------------------------


class Trainer:
    """Parameters, AdamW moments and the step count; `step` is one update."""

    def __init__(self, config, policy, parameters, device="cpu"):
        self.config, self.policy, self.count = config, policy, 0
        self.is_matrix = {name: matrix for name, (_, _, matrix) in parameter_shapes(config).items()}
        self.decays = {n: m or n.endswith("router") for n, m in self.is_matrix.items()}
        self.p = {}
        for name in self.is_matrix:
            self.p[name] = policy.parameter(parameters[name].to(device), self.is_matrix[name]).requires_grad_()
        wide = torch.float64 if self.p["final_norm"].dtype == torch.float64 else torch.float32
        self.m = {name: torch.zeros_like(t, dtype=wide) for name, t in self.p.items()}
        self.v = {name: torch.zeros_like(t, dtype=wide) for name, t in self.p.items()}

    def step(self, tokens, targets, choices=None, forced=None):
        names = list(self.p)
        choices = [] if choices is None else choices
        ce, aux = losses(self.config, self.policy, self.p, tokens, targets, choices, forced)
        total = ce + aux_coefficient(self.config, self.count) * aux
        grads = torch.autograd.grad(total, [self.p[name] for name in names])
        self.update(names, grads)
        return ce.detach(), torch.as_tensor(aux).detach(), dict(zip(names, grads))

    @torch.no_grad()
    def update(self, names, grads):
        c = self.config
        lr = learning_rate(c, self.count)
        self.count += 1
        grads = [g.to(self.m[n].dtype) for n, g in zip(names, grads)]
        if c.clip > 0:
            norm = torch.sqrt(sum((g * g).sum() for g in grads))
            grads = torch._foreach_mul(grads, float(min(1.0, c.clip / norm)))  # not in place: callers read theirs
        m, v = [self.m[n] for n in names], [self.v[n] for n in names]
        torch._foreach_mul_(m, c.beta1)
        torch._foreach_add_(m, grads, alpha=1 - c.beta1)
        torch._foreach_mul_(v, c.beta2)
        torch._foreach_addcmul_(v, grads, grads, 1 - c.beta2)
        denominator = torch._foreach_sqrt(torch._foreach_div(v, 1 - c.beta2**self.count))
        torch._foreach_add_(denominator, c.eps)
        rate = lr / (1 - c.beta1**self.count)
        for n, numerator, below in zip(names, m, denominator):
            old = self.p[n].to(numerator.dtype)
            new = old * (1 - lr * c.decay) if self.decays[n] else old
            new = torch.addcdiv(new, numerator, below, value=-rate)
            self.p[n].copy_(self.policy.updated(new, self.is_matrix[n]))


def random_parameters(config, seed):
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, (shape, fan_in, _) in parameter_shapes(config).items():
        unit = torch.rand(shape, generator=generator) * 2 - 1
        made[name] = unit / math.sqrt(fan_in) if fan_in else torch.ones(shape)
    made["head"][:, config.vocab :] = 0
    return made
