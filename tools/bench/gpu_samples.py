"""Clocks, power and memory of one card while something runs on it, as nvidia-smi tells them."""

import statistics
import subprocess
import threading
import time

FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "memory.used")


def parse_line(line):
    """Numbers of one line of CSV, None where the card does not tell."""
    numbers = []
    for text in line.split(","):
        try:
            numbers.append(float(text))
        except ValueError:
            numbers.append(None)
    return numbers if len(numbers) == len(FIELDS) else None


class Sampler:
    """Samples from `start` to `stop`; without nvidia-smi there are none."""

    def __init__(self, program="nvidia-smi", gpu=0, every_ms=200):
        self.command = [program, "-i", str(gpu), f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits",
                        "-lms", str(every_ms)]
        self.samples = []  # (unix time, numbers)
        self.process = self.thread = None

    def start(self):
        try:
            self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                            start_new_session=True)
        except OSError:
            return self
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        return self

    def read(self):
        for line in self.process.stdout:
            numbers = parse_line(line)
            if numbers:
                self.samples.append((time.time(), numbers))

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.thread.join(timeout=5)
            self.process.stdout.close()


def summary(samples, begin, end):
    """Medians between two moments (the timed part), the largest memory of all."""
    def told(rows, field):
        return [numbers[FIELDS.index(field)] for _, numbers in rows if numbers[FIELDS.index(field)] is not None]

    inside = [s for s in samples if begin <= s[0] <= end]
    result = {"samples": len(inside)}
    for name, field in (("sm_mhz", "clocks.sm"), ("memory_mhz", "clocks.mem"), ("power_w", "power.draw"),
                        ("temperature_c", "temperature.gpu")):
        values = told(inside, field)
        result[name] = statistics.median(values) if values else None
    used = told(samples, "memory.used")
    result["memory_used_mib"] = max(used) if used else None
    return result


def card_of(program="nvidia-smi", gpu=0):
    """Name, driver, power limit of a card; empty without nvidia-smi."""
    fields = ("name", "driver_version", "power.limit", "memory.total")
    try:
        text = subprocess.run([program, "-i", str(gpu), f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [v.strip() for v in text.strip().split(",")]
    if len(values) != len(fields):
        return {}
    return dict(zip(("card", "driver", "power_limit", "memory"), values))
