"""Times products in PyTorch for stepc_bench: a request a line, an answer a line.

  version                          -> the version
  matmul dtype batch m k n ta tb   -> ready
  run count                        -> so many times, in seconds
"""
import os
import sys
import time

for library in ("OPENBLAS", "OMP"):
    os.environ[f"{library}_NUM_THREADS"] = sys.argv[1]

import torch  # noqa: E402

torch.set_num_threads(int(sys.argv[1]))
clock = time.thread_time if sys.argv[2] == "cpu" else time.perf_counter
torch.manual_seed(1)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
product = None


def prepare(dtype, batch, m, k, n, transpose_a, transpose_b):
    def matrix(rows, columns, transposed):
        shape = (columns, rows) if transposed else (rows, columns)
        stored = torch.rand((batch, *shape) if batch > 1 else shape) - 0.5
        stored = stored.to(DTYPES[dtype])
        return stored.transpose(-1, -2) if transposed else stored

    a = matrix(m, k, transpose_a)
    b = matrix(k, n, transpose_b)
    out = torch.matmul(a, b)
    return lambda: torch.matmul(a, b, out=out)


with torch.inference_mode():
    for line in sys.stdin:
        word, *args = line.split()
        if word == "version":
            answer = torch.__version__
        elif word == "matmul":
            product = prepare(args[0], *map(int, args[1:]))
            answer = "ready"
        elif word == "run":
            times = []
            for _ in range(int(args[0])):
                start = clock()
                product()
                times.append(clock() - start)
            answer = " ".join(f"{t:.9f}" for t in times)
        else:
            answer = f"unknown request {word}"
        print(answer, flush=True)
