"""What both comparisons share: training runs of stepc in folders of their own, and tables."""

import hashlib
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Failure(Exception):
    """One sentence of what could not be done; the scripts end with 1."""


def default_stepc():
    return os.path.join(ROOT, "build", "release", "stepc")


def run_command(command):
    """Standard output of a command that ends well; it is echoed to standard error before."""
    print("+ " + " ".join(command), file=sys.stderr, flush=True)
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from None
    if result.returncode != 0:
        raise Failure(f"{command[0]} ended with {result.returncode}: {result.stderr.strip()[-2000:]}")
    return result.stdout


def settings(pairs):
    return [word for pair in pairs for word in ("--set", pair)]


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def file_hash(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


class Run:
    """A finished `stepc train`: losses of every step, shares kept, the experts of every token, the last state's hash.
    What is not there (no routing in a dense model, no checkpoint) is None."""

    def __init__(self, folder):
        lines = [line for line in read_lines(os.path.join(folder, "metrics.jsonl")) if "loss" in line]
        self.losses = [line["loss"] for line in lines]
        self.kept = [line.get("kept_share") for line in lines]
        routing = os.path.join(folder, "routing.jsonl")
        self.choices = [line["experts"] for line in read_lines(routing)] if os.path.exists(routing) else None
        checkpoints = os.path.join(folder, "checkpoints")
        names = sorted(os.listdir(checkpoints)) if os.path.isdir(checkpoints) else []
        self.state = file_hash(os.path.join(checkpoints, names[-1], "tensors.safetensors")) if names else None

    def bits(self):
        return {"losses": self.losses, "choices": self.choices, "state": self.state}


def train(stepc, folder, arguments, records_routing=True):
    command = [stepc, "train", "--fresh", "--run", folder, *arguments]
    if records_routing:
        os.makedirs(folder, exist_ok=True)
        command += ["--record-routing", os.path.join(folder, "routing.jsonl")]
    run_command(command)
    return Run(folder)


def markdown(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def write_report(out, text, found):
    """OUT.md and OUT.json, or the text to standard output."""
    if not out:
        print(text)
        return
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    for suffix, content in ((".md", text + "\n"), (".json", json.dumps(found, indent=1) + "\n")):
        with open(out + suffix, "w") as file:
            file.write(content)
    print(f"{out}.md, {out}.json")


def verdict(complaints):
    """What the scripts end with: each complaint on standard error, 1 if there is one."""
    for complaint in complaints:
        print(f"disagreement: {complaint}", file=sys.stderr)
    return 1 if complaints else 0
