"""Times steps of a Trainer: at least twenty between two synchronisations, and each by the device's own events."""

import os
import statistics
import sys
import time

import torch

from kernel_categories import attention_family, summary
from moe_model import model_flops_per_token
from moe_training import GRAPH_TIERS


def windows_ahead(tokens, steps, batch, seq, device):
    """Ids and targets of every step, on the device before the first."""
    count = (len(tokens) - 1) // seq
    made = []
    for step in range(steps):
        starts = [(step * batch + row) % count * seq for row in range(batch)]
        ids = torch.stack([tokens[start : start + seq + 1] for start in starts]).to(torch.int64)
        made.append((ids[:, :-1].contiguous().to(device), ids[:, 1:].contiguous().to(device)))
    return made


class Marks:
    """Moments in the device's own time, or, on a CPU, in the host's."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.marks = []

    def add(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def milliseconds(self):
        pairs = list(zip(self.marks, self.marks[1:]))
        return [a.elapsed_time(b) for a, b in pairs] if self.cuda else [(b - a) * 1e3 for a, b in pairs]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def take_steps(trainer, windows, warmup, progress):
    """Every step; the first `warmup` waited for one by one, the others only at the end."""
    device, steps = trainer.device, len(windows)
    losses = torch.zeros(steps, device=device)
    shares = torch.zeros(steps, trainer.c.layers, device=device)

    def step(i):
        cross_entropy, kept = trainer.step(*windows[i])
        losses[i].copy_(cross_entropy)
        shares[i].copy_(kept)

    waited = []
    for i in range(warmup):
        begun = time.perf_counter()
        step(i)
        synchronize(device)
        waited.append((time.perf_counter() - begun) * 1e3)
        if i == 0:
            first_step_unix = time.time()
        if progress:
            text = f"step {i + 1}/{steps}: loss {float(losses[i]):.4f}, {waited[-1]:.1f} ms"
            print(text, file=sys.stderr, flush=True)
    marks = Marks(device)
    timed_unix = [time.time()]
    begun = time.perf_counter()
    marks.add()
    for i in range(warmup, steps):
        step(i)
        marks.add()
    synchronize(device)
    wall = time.perf_counter() - begun
    timed_unix.append(time.time())
    return {"losses": losses.tolist(), "kept": shares.tolist(), "warmup_ms": waited, "step_ms": marks.milliseconds(),
            "timed_s": wall, "timed_unix": timed_unix, "first_step_unix": first_step_unix}


def kernels_of(run):
    """(name, milliseconds) of every kernel, copy and fill that the profiler saw on the device; not of regions that
    somebody named, which lie over them, nor of waits."""
    from torch.autograd import DeviceType

    return [(e.name, e.time_range.elapsed_us() / 1e3) for e in run.events()
            if e.device_type == DeviceType.CUDA and not getattr(e, "is_user_annotation", False)
            and not e.name.startswith("#") and not e.name.endswith((" Sync", " Synchronize"))]


def profile_step(trainer, ids, targets):
    """One step's kernels, gradients and update apart: (name, milliseconds, ran in the update)."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as run:
        gradients, _ = trainer.gradients(ids, targets)
        torch.cuda.synchronize()
    seen = [(name, ms, False) for name, ms in kernels_of(run)]
    with profile(activities=[ProfilerActivity.CUDA]) as run:
        trainer.apply(gradients)
        torch.cuda.synchronize()
    return seen + [(name, ms, True) for name, ms in kernels_of(run)]


def recorded_graphs():
    """What inductor says of CUDA graphs: how many were recorded, how often it skipped them, and the inputs that it
    copies at each replay. None where it cannot be asked."""
    try:
        from torch._dynamo.utils import counters
        from torch._inductor.cudagraph_trees import get_manager

        manager = get_manager(torch.cuda.current_device(), create_if_none_exists=False)
        nodes = [] if manager is None else [n for roots in manager.roots.values() for n in roots]
        recorded = 0
        while nodes:
            node = nodes.pop()
            recorded += 1
            nodes += [child for children in node.children.values() for child in children]
        return {"recorded": recorded, "skipped": counters["inductor"]["cudagraph_skips"],
                "copied_inputs": counters["inductor"]["cudagraph_recorded_non_static_inputs"]}
    except (ImportError, AttributeError):
        return None


def memory_of(device):
    if device.type != "cuda":
        return {}
    return {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}


def measure(trainer, tier, tokens, batch, steps, warmup, peak_flops, progress=False, kernels=False):
    """The measured part of a row."""
    c, device = trainer.c, trainer.device
    windows = windows_ahead(tokens, steps, batch, c.seq, device)
    synchronize(device)
    taken = take_steps(trainer, windows, warmup, progress)
    step_ms, kept = taken["step_ms"], taken.pop("kept")
    rate = batch * c.seq * len(step_ms) / taken["timed_s"]
    quarters = statistics.quantiles(step_ms, n=4) if len(step_ms) > 1 else step_ms * 3
    row = {"steps": len(step_ms), "tokens_per_s": rate, "mfu": rate * model_flops_per_token(c) / peak_flops,
           "mean_ms": taken["timed_s"] * 1e3 / len(step_ms), "median_ms": statistics.median(step_ms),
           "low_ms": quarters[0], "high_ms": quarters[2], "first_step_s": taken["warmup_ms"][0] / 1e3,
           **memory_of(device), "kept_first": kept[0], "kept_last": kept[-1],
           "kept_mean": statistics.fmean(statistics.fmean(k) for k in kept[warmup:]), **taken}
    if tier in GRAPH_TIERS and device.type == "cuda":
        row["cuda_graphs"] = recorded_graphs()
    if device.type == "cuda":
        seen = profile_step(trainer, *windows[-1])
        row["attention_ran"] = attention_family({name for name, *_ in seen})
        if kernels:
            row["kernels"] = summary(seen)
    return row


def environment(device):
    """What a figure depends on beside the code."""
    known = {"torch": torch.__version__, "python": sys.version.split()[0], "device": device.type}
    if device.type == "cuda":
        known.update(card=torch.cuda.get_device_name(), cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
    if "PYTORCH_CUDA_ALLOC_CONF" in os.environ:
        known["alloc_conf"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
    return known
