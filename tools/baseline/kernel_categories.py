"""What a GPU kernel of the opponent is for, from its name."""

CATEGORIES = ("gemm", "attention_forward", "attention_backward", "optimizer", "router_gemm", "copy", "other")

GEMM_PARTS = ("gemm", "nvjet", "cutlass", "xmma", "splitk", "cublas", "triton_mm", "triton_bmm", "triton_tem")
# The policy has no other fp32 products than the routers'.
FP32_GEMM_PARTS = ("sgemm", "f32f32_f32f32", "gemmsn", "gemv")
FORWARD_PARTS = ("fprop", "flash_fwd", "fmha_cutlassf")
BACKWARD_PARTS = ("bprop", "flash_bwd", "dot_do_o", "convert_dq", "fmha_cutlassb")


def category(name, in_update=False):
    """`in_update`: it ran while the optimizer did."""
    lower = name.lower()
    if in_update:
        return "optimizer"
    if lower.startswith(("memcpy", "memset")):
        return "copy"
    if any(part in lower for part in BACKWARD_PARTS):
        return "attention_backward"
    if any(part in lower for part in FORWARD_PARTS):
        return "attention_forward"
    if any(part in lower for part in FP32_GEMM_PARTS):
        return "router_gemm"
    return "gemm" if any(part in lower for part in GEMM_PARTS) else "other"


def attention_family(names):
    """Which attention ran: of cudnn, flash, efficient those whose kernels are among `names`."""
    families = set()
    for name in names:
        lower = name.lower()
        if category(name) not in ("attention_forward", "attention_backward"):
            continue
        families.add("cudnn" if "cudnn" in lower else "efficient" if "fmha" in lower else "flash")
    return sorted(families) or ["none"]


def summary(kernels, top=25):
    """Of (name, milliseconds, ran in the update): milliseconds by category, the total, the `top` names by time."""
    by_category = dict.fromkeys(CATEGORIES, 0.0)
    by_name = {}
    for name, milliseconds, in_update in kernels:
        kind = category(name, in_update)
        by_category[kind] += milliseconds
        row = by_name.setdefault((name, kind), [0.0, 0])
        row[0] += milliseconds
        row[1] += 1
    largest = sorted(by_name.items(), key=lambda item: -item[1][0])[:top]
    return {"total_ms": sum(by_category.values()), "by_category_ms": by_category,
            "top": [{"name": name, "category": kind, "ms": row[0], "launches": row[1]}
                    for (name, kind), row in largest]}


def text_of(found):
    """A summary for people."""
    kinds = ", ".join(f"{kind} {ms:.1f}" for kind, ms in found["by_category_ms"].items())
    lines = [f"kernels of one step, ms: {found['total_ms']:.1f} = {kinds}"]
    lines += [f"{row['ms']:9.3f} {row['launches']:5d} {row['category']:19} {row['name'][:110]}" for row in found["top"]]
    return "\n".join(lines)
