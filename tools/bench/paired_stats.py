"""Ratios of paired rounds: the geometric mean and its 95% interval by Student's t over the rounds' logarithms.

A round's two sides ran minutes apart on one card, so what the card did that day cancels; steps within a round are no
independent measurements and give no interval of their own."""

import math
import statistics

# Two-sided 95% quantiles of Student's t by degrees of freedom; between entries the smaller number of degrees counts.
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179,
        15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980}


def t_95(degrees):
    return T_95[max(d for d in T_95 if d <= degrees)]


def ratio_of(pairs):
    """Of [(ours, theirs)]: the ratio ours / theirs, its interval (None from one round), the number of rounds."""
    logs = [math.log(ours / theirs) for ours, theirs in pairs]
    mean = statistics.fmean(logs)
    result = {"rounds": len(logs), "ratio": math.exp(mean), "low": None, "high": None,
              "each": [math.exp(x) for x in logs]}
    if len(logs) > 1:
        half = t_95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        result.update(low=math.exp(mean - half), high=math.exp(mean + half))
    return result


def spread(values):
    """Median, smallest and largest; None of nothing."""
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def largest_difference(ours, theirs):
    """Over the steps that both have: (largest, its step counted from 1)."""
    return max((abs(a - b), step) for step, (a, b) in enumerate(zip(ours, theirs), 1))
