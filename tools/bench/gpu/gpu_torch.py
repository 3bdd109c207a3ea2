"""PyTorch's side of stepc_gpu_bench: a request a line, an answer a line.

  version                                    -> versions and the card
  matmul batch m n k ta tb dtype             -> ready: one product of bf16 operands (dtype f32: its own f32 result)
  residual batch m n k ta tb dtype           -> ready: the product added to a bf16 tensor
  swiglu batch m n k ta tb dtype             -> ready: the product, then silu(gate) * up as one compiled pass
  attention batch tokens heads dim backend   -> ready: causal, forward
  attention_grad ..                          -> ready: its gradient alone
  run count                                  -> so many times, in milliseconds
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
torch.manual_seed(1)
torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def operands(batch, m, n, k, transpose_a, transpose_b):
    def matrix(rows, columns, transposed):
        shape = (columns, rows) if transposed else (rows, columns)
        stored = torch.randn((batch, *shape) if batch > 1 else shape, device="cuda", dtype=torch.bfloat16)
        return stored.transpose(-1, -2) if transposed else stored

    return matrix(m, k, transpose_a), matrix(k, n, transpose_b)


def product(a, b, dtype):
    """The product with results of `dtype`; f32 ones without rounding to bf16 in between."""
    if dtype == "bf16":
        out = torch.matmul(a, b)
        return lambda: torch.matmul(a, b, out=out)
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    return lambda: multiply(a, b, out_dtype=torch.float32)


@torch.compile(dynamic=False)
def gated(z):
    gate, up = z.chunk(2, -1)
    return (F.silu(gate.float()) * up.float()).to(z.dtype)


def contraction(kind, batch, m, n, k, transpose_a, transpose_b, dtype):
    a, b = operands(*(int(x) for x in (batch, m, n, k, transpose_a, transpose_b)))
    if kind == "matmul":
        return product(a, b, dtype)
    z = torch.matmul(a, b)
    if kind == "residual":
        r = torch.randn_like(z)
        add = torch.addmm if a.dim() == 2 else torch.baddbmm
        return lambda: add(r, a, b, out=z)

    def step():
        torch.matmul(a, b, out=z)
        return gated(z)

    return step


def attention(kind, batch, tokens, heads, dim, backend):
    shape = [int(x) for x in (batch, tokens, heads, dim)]
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in "qkv")
    dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    def forward():
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    if kind == "attention":
        def without_graph():
            with torch.no_grad():
                return forward()
        return without_graph
    out = forward()
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def times(call, count):
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


call = None
for line in sys.stdin:
    word, *args = line.split()
    try:
        if word == "version":
            answer = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"
        elif word in ("matmul", "residual", "swiglu"):
            call = None
            torch.cuda.empty_cache()
            call = contraction(word, *args)
            answer = "ready"
        elif word in ("attention", "attention_grad"):
            call = None
            torch.cuda.empty_cache()
            call = attention(word, *args)
            answer = "ready"
        elif word == "run":
            answer = " ".join(f"{t:.6f}" for t in times(call, int(args[0])))
        else:
            answer = f"unknown request {word}"
    except Exception as error:  # an answer too: the other side names the case and goes on
        answer = f"failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    print(answer, flush=True)
