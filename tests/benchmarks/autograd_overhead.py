"""What one node of a graph costs, forwards and backwards, on arrays too small to matter.

    python tests/benchmarks/autograd_overhead.py [--json FILE]

A chain ``x = x * a + b`` of some hundred steps on arrays of four numbers (micrograd: on one number),
forwards and backwards; microseconds for each operation. The contenders take turns; those that are not
installed are left out: MyGrad, HIPS autograd, micrograd, PyTorch.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np  # noqa: E402

STEPS, SIZE = 200, 4  # of x * a + b: two operations each


def chain(x, a, b):
    """The graph; whatever x is."""
    for _ in range(STEPS):
        x = x * a + b
    return x


def minitx_run():
    import minitx as tx

    x, a, b = (tx.tensor(np.full(SIZE, v), requires_grad=True) for v in (1.0, 0.5, 0.1))

    def run():
        x.grad = a.grad = b.grad = None
        chain(x, a, b).sum().backward()
        return a.grad[0]

    return run


def mygrad_run():
    import mygrad

    def run():
        x, a, b = (mygrad.tensor(np.full(SIZE, v)) for v in (1.0, 0.5, 0.1))
        chain(x, a, b).sum().backward()
        return a.grad[0]

    return run


def autograd_run():
    import autograd
    import autograd.numpy as anp

    gradient = autograd.grad(lambda x, a, b: anp.sum(chain(x, a, b)), argnum=(0, 1, 2))
    inputs = [np.full(SIZE, v) for v in (1.0, 0.5, 0.1)]
    return lambda: gradient(*inputs)[1][0]


def micrograd_run():
    from micrograd.engine import Value

    sys.setrecursionlimit(10_000)  # its walk over the graph is recursive

    def run():
        x, a, b = Value(1.0), Value(0.5), Value(0.1)
        chain(x, a, b).backward()
        return a.grad

    return run


def torch_run():
    import torch

    torch.set_num_threads(1)
    values = [torch.full((SIZE,), v, dtype=torch.float64) for v in (1.0, 0.5, 0.1)]
    x, a, b = (v.requires_grad_() for v in values)

    def run():
        x.grad = a.grad = b.grad = None
        chain(x, a, b).sum().backward()
        return a.grad[0].item()

    return run


MAKERS = {
    "minitx": minitx_run,
    "mygrad": mygrad_run,
    "autograd": autograd_run,
    "micrograd": micrograd_run,
    "torch": torch_run,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="write the numbers here")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    here = [n for n in MAKERS if importlib.util.find_spec(n)]
    runs = {name: MAKERS[name]() for name in here}
    answers = {name: float(run()) for name, run in runs.items()}  # also warms up
    for name, answer in answers.items():
        if not np.isclose(answer, answers["minitx"]):
            raise SystemExit(f"{name} finds the gradient {answer}, minitx {answers['minitx']}")
    times = {name: [] for name in here}
    for _ in range(options.rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / (2 * STEPS) * 1e6)
    result = {}
    print("| | µs for each operation, forwards and backwards: median | best |\n|---|---|---|")
    for name in here:
        result[name] = {"median_us": float(np.median(times[name])), "best_us": min(times[name])}
        note = " (numbers, not arrays)" if name == "micrograd" else ""
        print(f"| {name}{note} | {np.median(times[name]):.2f} | {min(times[name]):.2f} |")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
