"""What the tests of tools/agree share: a shard and a model of a few thousand parameters, and scripts run in-process."""

import contextlib
import io
import os
import random
import struct
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "agree"))

STEPC = os.environ.get("STEPC_BINARY", "")
SIZES = ["vocab=61", "vocab_padded=64", "dim=32", "heads=2", "head_dim=16", "layers=2", "ffn=16", "experts=4", "seq=32"]


def write_shard(path, vocab=61, count=20000):
    generator = random.Random(5)
    ids, at = [], 0
    for _ in range(count):  # a walk, so that there is something to learn
        at = (at + generator.choice((1, 1, 2, 7))) % vocab
        ids.append(at)
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIIIQ", b"TOK1", 1, 1, 0, count) + struct.pack(f"<{count}H", *ids))


def silently(main, arguments):
    """Exit code, standard output and error of a script's main."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["script", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main()
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()
