"""What one node of a graph costs, on arrays so small that nothing else counts.

    python tests/benchmarks/autograd_overhead.py [--nodes 100] [--repeats 30] [--json FILE]

A chain of ``nodes`` operations on 2 x 2 float64 arrays, forward alone and forward with backward, in
minitx and in each peer found installed: MyGrad, HIPS autograd, micrograd (numbers, not arrays),
PyTorch. The contenders take turns; the figure is the least CPU time over the repeats, per node, so
that a busy machine disturbs little. Two chains: ``multiply`` uses the leaf again at each step (two
inputs, both need gradients), ``tanh`` has one input.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from pathlib import Path

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402

X = np.full((2, 2), 0.9)
CHAINS = ("multiply", "tanh")


def chain(name, tanh, x, nodes):
    """The same chain in everyone's operators."""
    y = x
    for _ in range(nodes):
        y = y * x if name == "multiply" else tanh(y)
    return y


# Each contender is a function of (chain, nodes) -> (forward, forward_and_backward), two functions
# without arguments. It raises ImportError if the package is not there.


def numpy_alone(name, nodes):
    """The floor: NumPy's own time for the forward pass, without a graph."""
    return (lambda: chain(name, np.tanh, X, nodes).sum()), None


def minitx(name, nodes):
    tx = importlib.import_module("minitx")

    def forward():
        return chain(name, tx.ops.tanh, tx.Tensor(X, requires_grad=True), nodes).sum()

    return forward, lambda: forward().backward()


def mygrad(name, nodes):
    mg = importlib.import_module("mygrad")

    def forward():
        return chain(name, mg.tanh, mg.tensor(X), nodes).sum()

    return forward, lambda: forward().backward()


def hips_autograd(name, nodes):
    autograd = importlib.import_module("autograd")
    anp = importlib.import_module("autograd.numpy")
    gradient = autograd.grad(lambda x: anp.sum(chain(name, anp.tanh, x, nodes)))
    return None, lambda: gradient(X)  # it records only while a gradient is asked for


def micrograd(name, nodes):
    value = importlib.import_module("micrograd.engine").Value
    if name == "tanh":
        raise ImportError("micrograd has no tanh")

    def forward():
        return chain(name, None, value(0.9), nodes)

    return forward, lambda: forward().backward()


def pytorch(name, nodes):
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)

    def forward():
        return chain(name, torch.tanh, torch.tensor(X, requires_grad=True), nodes).sum()

    return forward, lambda: forward().backward()


CONTENDERS = (numpy_alone, minitx, mygrad, hips_autograd, micrograd, pytorch)


def measure(nodes: int, repeats: int) -> list[dict]:
    """Microseconds of CPU time for each node, the least over ``repeats``."""
    runs = []
    for name in CHAINS:
        for contender in CONTENDERS:
            try:
                forward, both = contender(name, nodes)
            except ImportError:
                continue
            for what, run in (("forward", forward), ("forward_backward", both)):
                if run is not None:
                    run()  # what is compiled or cached on first use
                    runs.append([name, contender.__name__, what, run, float("inf")])
    for _ in range(repeats):
        for entry in runs:
            start = time.process_time()
            for _ in range(3):
                entry[3]()
            entry[4] = min(entry[4], (time.process_time() - start) / 3)
    rows: dict[tuple, dict] = {}
    for name, who, what, _, seconds in runs:
        row = rows.setdefault((name, who), {"chain": name, "contender": who})
        row[f"{what}_us"] = round(1e6 * seconds / nodes, 3)
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = measure(options.nodes, options.repeats)
    print(f"{'chain':10}{'contender':16}{'forward':>12}{'with backward':>16}   us a node")
    for row in rows:
        cells = (row.get("forward_us", ""), row.get("forward_backward_us", ""))
        print(f"{row['chain']:10}{row['contender']:16}{cells[0]:>12}{cells[1]:>16}")
    if options.json:
        options.json.write_text(json.dumps({"nodes": options.nodes, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
