"""stepc's reference model (docs/design.md) in plain PyTorch: presets, initial values, the forward pass.

Written for inductor: index maps instead of atomics, tables as inputs, masks instead of padded copies. It needs torch
and nothing of stepc.
"""

import math
import types

import torch
import torch.nn.functional as F

PRESETS = {
    "moe-4b": dict(vocab=50257, vocab_padded=50432, dim=3072, heads=24, head_dim=128, layers=12, ffn=4096, experts=8,
                   top=2, seq=2048),
    "narrow": dict(vocab=50257, vocab_padded=50432, dim=512, heads=4, head_dim=128, layers=2, ffn=512, experts=8,
                   top=2, seq=256),
}
NORM_EPS, ROPE_THETA = 1e-5, 10000.0
LOG2_E = math.log2(math.e)


class Config(types.SimpleNamespace):
    """The numbers of a preset as attributes, and
    low: the dtype of matrices and activations (bf16, or fp32 for comparisons),
    attention: "fused" is PyTorch's own choice among the kernels that are enabled, "math" is spelt out here,
    autocast: the device type whose autocast the router's product must be kept out of, or None."""


def make_config(preset, low=torch.bfloat16, attention="fused", autocast=None):
    return Config(**PRESETS[preset], low=low, attention=attention, autocast=autocast)


def model_flops_per_token(c):
    """As docs/design.md counts: attention as if it were not causal."""
    block = 4 * c.dim**2 + c.dim * c.experts + c.top * 3 * c.dim * c.ffn
    return 6 * (c.layers * block + c.dim * c.vocab_padded) + 12 * c.layers * c.dim * c.seq


# ---- parameters: Philox 4x32-10, a stream a name, as stepc's init program ------------------------------------------


def parameter_table(c):
    """name -> (shape, fan_in or 0 for ones, is a matrix of the policy's low precision, is decayed)"""
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
    chunk = 1 << (26 if torch.device(device).type == "cuda" else 24)
    made = {}
    for name, (shape, fan_in, matrix, _) in parameter_table(c).items():
        dtype = c.low if matrix else torch.float32
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


# ---- expert slots --------------------------------------------------------------------------------------------------


def rows_or_zeros(x, index):
    """Row index[i] of x, zeros where there is none (an index past the end). A mask, not a padded copy of x: inductor
    makes one kernel of it and of what reads it."""
    return torch.where((index < x.shape[0])[..., None], x[index.clamp(max=x.shape[0] - 1)], 0.0)


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
    """The weighted sum of the output rows of each token's slots, fp32 [N, D]; a dropped assignment adds nothing.

    The gradient goes by slots: one pass over y makes its gradient and, as dot products, that of the weights. Left to
    autograd, the rows picked by token would be kept for it and their gradient written, 0.8 GB a layer at batch 16."""

    @staticmethod
    def forward(ctx, y, weights, slot_of, assignment_of_slot):
        ctx.save_for_backward(y, weights, slot_of, assignment_of_slot)
        return (weights[:, :, None] * rows_or_zeros(y, slot_of).float()).sum(1)

    @staticmethod
    def backward(ctx, grad):
        y, weights, slot_of, assignment_of_slot = ctx.saved_tensors
        flat = weights.reshape(-1)
        live = assignment_of_slot < flat.shape[0]
        assignment = torch.where(live, assignment_of_slot, 0)
        # The residual stream's gradient is of y's precision: rows of it lose nothing by being gathered in that.
        rows = grad.to(y.dtype)[assignment // weights.shape[1]].float()
        grad_y = (torch.where(live, flat[assignment], 0.0)[:, None] * rows).to(y.dtype)
        dots = (rows * y.float()).sum(1)
        return grad_y, rows_or_zeros(dots[:, None], slot_of).squeeze(-1), None, None


def capacity_of(c, tokens):
    return max(1, math.ceil(tokens * c.top / c.experts))


def route(c, probs, capacity, equal):
    """Chosen experts [N, K], slot of each assignment [N, K] (E*C: dropped), assignment of each slot, counts."""
    tokens = probs.shape[0]
    total = tokens * c.top
    if equal:
        flat = torch.arange(total, device=probs.device) % c.experts
    else:
        flat = torch.sort(probs, dim=-1, descending=True, stable=True).indices[:, : c.top].reshape(-1)
    # One scan over the experts' rows put end to end: inductor splits it over the card, which it does not do with eight.
    onehot = (flat == torch.arange(c.experts, device=probs.device)[:, None]).to(torch.int32)
    running = onehot.reshape(-1).cumsum(0, dtype=torch.int32).view(c.experts, total)
    before = F.pad(running[:-1, -1], (1, 0))
    place = (running.gather(0, flat[None]).squeeze(0) - before[flat]).long() - 1
    dead = c.experts * capacity
    slot = torch.where(place < capacity, flat * capacity + place, dead)
    # Dropped assignments share the spare last place, whose content nobody reads. In 32 bits, which inductor scatters.
    assignment = torch.full((dead + 1,), total, dtype=torch.int32, device=probs.device)
    numbers = torch.arange(total, dtype=torch.int32, device=probs.device)
    assignment = assignment.scatter(0, slot, numbers)[:-1].long()
    return flat.view(tokens, c.top), slot.view(tokens, c.top), assignment, running[:, -1] - before


# ---- layers --------------------------------------------------------------------------------------------------------


class SwiGLU(torch.autograd.Function):
    """silu(gate) * up of [.., 2F], gate in the first half. Autograd would put the gradient together from two halves, of
    which inductor computes both for every element; here one sigmoid serves either."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        gate, up = z.float().chunk(2, -1)
        return (gate * torch.sigmoid(gate) * up).to(z.dtype)

    @staticmethod
    def backward(ctx, grad):
        (z,) = ctx.saved_tensors
        gate, up = z.float().unflatten(-1, (2, -1)).split(1, -2)
        sigmoid = torch.sigmoid(gate)
        is_gate = torch.arange(2, device=z.device)[:, None] == 0
        other = torch.where(is_gate, up * (1 + gate * (1 - sigmoid)), gate)
        return (grad.float()[..., None, :] * sigmoid * other).to(z.dtype).flatten(-2)


class CrossEntropy(torch.autograd.Function):
    """Mean cross-entropy over the first `vocab` columns of logits [N, padded]. Whole rows are read and written, the
    padding masked afterwards: a slice of an odd number of columns would be loaded two bytes at a time. Powers of two,
    because their exponential is one instruction; inductor's online softmax would take two for every element."""

    @staticmethod
    def forward(ctx, logits, targets, vocab):
        column = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
        scaled = torch.where(column < vocab, logits.float() * LOG2_E, -1e30)
        top = scaled.amax(1, keepdim=True)
        log_sum = top + torch.exp2(scaled - top).sum(1, keepdim=True).log2()
        ctx.save_for_backward(logits, targets, log_sum)
        ctx.vocab = vocab
        return (log_sum / LOG2_E - logits.gather(1, targets[:, None]).float()).mean()

    @staticmethod
    def backward(ctx, grad):
        logits, targets, log_sum = ctx.saved_tensors
        column = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device)
        likely = torch.where(column < ctx.vocab, torch.exp2(logits.float() * LOG2_E - log_sum), 0.0)
        hit = (column == targets[:, None].int()).float()
        return ((likely - hit) * (grad / targets.shape[0])).to(logits.dtype), None, None


def rms_norm(x, weight):
    wide = x.float()
    return wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + NORM_EPS) * weight


def rope_tables(c, device):
    """Cosines and signed sines of every position and column, [T, 1, d]; made once, in double precision."""
    pair = torch.arange(c.head_dim // 2, dtype=torch.float64, device=device)
    angle = torch.arange(c.seq, dtype=torch.float64, device=device)[:, None] * ROPE_THETA ** (-2 * pair / c.head_dim)
    cos, sin = torch.cos(angle).float(), torch.sin(angle).float()
    return torch.stack((cos, cos), -1).flatten(-2)[:, None], torch.stack((-sin, sin), -1).flatten(-2)[:, None]


def turned(x, cos, sin):
    """Turns the pairs (2p, 2p+1) of the last axis: two loads an element, where halves put together would take four."""
    wide = x.float()
    partner = wide.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    return (wide * cos + partner * sin).to(x.dtype)


class TurnedHeads(torch.autograd.Function):
    """q, k and v of [B, T, 3, H, d], the first two turned by RoPE.

    Their gradients are put together from nine pieces: up to eight inductor makes one kernel that computes all of them
    for every element, from more it writes each piece to its place."""

    @staticmethod
    def forward(ctx, qkv, cos, sin):
        ctx.save_for_backward(cos, sin)
        q, k, v = qkv.unbind(2)
        return turned(q, cos, sin), turned(k, cos, sin), v

    @staticmethod
    def backward(ctx, grad_q, grad_k, grad_v):
        cos, sin = ctx.saved_tensors
        grads = (turned(grad_q, cos, -sin), turned(grad_k, cos, -sin), grad_v)
        heads = grad_q.shape[2]
        size = (heads + 2) // 3
        pieces = [piece for grad in grads for piece in grad.split(size, 2)]
        return torch.cat(pieces, 2).unflatten(2, (3, heads)), None, None


def attention(c, q, k, v):
    """Causal attention of [B, H, T, d]."""
    if c.attention == "fused":
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = q.float() @ k.float().transpose(-1, -2) * (1 / math.sqrt(c.head_dim))
    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).triu(1)
    weights = torch.softmax(scores.masked_fill(future, -math.inf), -1).to(c.low).float()
    return (weights @ v.float()).to(c.low)


def router_logits(c, h, weight):
    if c.autocast is None:
        return h.float() @ weight
    with torch.autocast(c.autocast, enabled=False):  # the policy's router is fp32, whatever the products around it
        return h.float() @ weight


def mixture(c, h, p, block, capacity, equal):
    tokens, dim = h.shape
    probs = torch.softmax(router_logits(c, h, p[block + "router"]), -1)
    chosen, slot, assignment, count = route(c, probs.detach(), capacity, equal)
    # A sum over a one-hot choice: the gradient of a gather would scatter.
    weights = torch.where(chosen[:, :, None] == torch.arange(c.experts, device=h.device), probs[:, None], 0.0).sum(-1)
    weights = weights / weights.sum(-1, keepdim=True)
    token_of_slot = torch.where(assignment < tokens * c.top, assignment // c.top, tokens)
    x = Dispatch.apply(h, token_of_slot, slot).view(c.experts, capacity, dim)
    y = SwiGLU.apply(torch.bmm(x, p[block + "gate_up"]))
    out = torch.bmm(y, p[block + "down"]).view(-1, dim)
    mixed = Combine.apply(out, weights, slot, assignment)
    fraction = count.float() / (tokens * c.top)
    kept = (slot < c.experts * capacity).float().mean()
    return mixed, c.experts * (fraction * probs.mean(0)).sum(), kept


def forward(c, p, tables, tokens, targets, aux_coefficient, equal):
    """Loss, cross-entropy, balance loss and the share of assignments kept by layer, of tokens [B, T]."""
    batch, length = tokens.shape
    capacity = capacity_of(c, batch * length)
    x = F.embedding(tokens.reshape(-1), p["embed"]).to(c.low)
    aux, kept = 0.0, []
    for layer in range(c.layers):
        block = f"blocks.{layer}."
        h = rms_norm(x, p[block + "attn_norm"]).to(c.low)
        qkv = (h @ p[block + "qkv"]).view(batch, length, 3, c.heads, c.head_dim)
        q, k, v = TurnedHeads.apply(qkv, *tables)
        o = attention(c, q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).reshape(h.shape)
        x = x + o @ p[block + "attn_out"]
        h = rms_norm(x, p[block + "ffn_norm"]).to(c.low)
        mixed, balance, share = mixture(c, h, p, block, capacity, equal)
        x = (x.float() + mixed).to(c.low)
        aux = aux + balance
        kept.append(share)
    h = rms_norm(x, p["final_norm"]).to(c.low)
    cross_entropy = CrossEntropy.apply(h @ p["head"], targets.reshape(-1), c.vocab)
    return cross_entropy + aux_coefficient * aux, cross_entropy, aux, torch.stack(kept)
