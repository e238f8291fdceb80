"""One training step (forward, backward, AdamW) of minitx against PyTorch and JAX, in turn.

    python tests/benchmarks/train_step.py [--json FILE] [--rows 1,2] [--threads 1,2] [--seconds 20]

What is compared: a pre-norm GPT with learned positions, GELU (tanh form), biases and an untied output,
float32, the same weights and batch; each contender in its own process, a few steps each in turn, so
that a busy machine slows all of them alike. First, minitx's and PyTorch's losses over 10 steps must
agree to 1e-4. Peers that are not installed are left out.

``matmul share`` is the rate of the step's matrix products (under the causal mask, only the pairs that
may see each other) over that of one large float32 product in the same run, same number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from contenders import installed

SHAPES = [  # batch, positions, vocabulary, width, heads, layers
    (16, 32, 32, 32, 2, 1),
    (32, 64, 64, 64, 4, 2),
    (64, 64, 64, 64, 4, 2),
    (32, 128, 64, 128, 4, 4),
    (32, 256, 128, 128, 4, 4),
]
LOSSES, AGREEMENT = 10, 1e-4


def flops(shape) -> float:
    """Multiplications and additions of the step's matrix products; backward counts twice forward."""
    B, T, V, d, _, L = shape
    layer = 2 * B * T * 12 * d * d + 2 * 2 * B * d * T * (T + 1) / 2
    return 3 * (L * layer + 2 * B * T * d * V)


class Contender:
    """A process that does steps when it is told to."""

    def __init__(self, name, shape, threads):
        names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "MINITX_THREADS")
        environment = os.environ | {variable: str(threads) for variable in names}
        if name == "jax" and threads == 1:
            environment["XLA_FLAGS"] = (
                "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
            )
        here = Path(__file__).parent
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(here.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        self.name, self.times = name, []
        self.process = subprocess.Popen(
            [sys.executable, str(here / "contenders.py"), name, json.dumps(shape), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment,
        )  # fmt: skip
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended: {self.process.stderr.read()[-2000:]}")
        return json.loads(line)

    def ask(self, *command):
        print(*command, file=self.process.stdin, flush=True)
        return self.read()

    def close(self):
        print("quit", file=self.process.stdin, flush=True)
        self.process.communicate()


def measure(shape, threads, seconds, contenders):
    """One row of the table."""
    runners = [Contender(name, shape, threads) for name in contenders]
    row = {"shape": list(shape), "threads": threads, "gflop": flops(shape) / 1e9}
    try:
        losses = {runner.name: runner.ask("losses", LOSSES) for runner in runners}
        for name in contenders[1:]:
            apart = float(np.abs(np.subtract(losses["minitx"], losses[name])).max())
            row[f"loss_difference_{name}"] = apart
            if not apart <= AGREEMENT:
                raise SystemExit(f"{shape}: the losses of minitx and {name} differ by {apart:.1e}")
        steps = {r.name: max(1, round(0.15 / min(r.ask("run", 3)))) for r in runners}
        rates, began, turn = [], time.perf_counter(), 0
        while turn < 4 or time.perf_counter() - began < seconds:
            for runner in runners[turn % len(runners) :] + runners[: turn % len(runners)]:
                runner.times += runner.ask("run", steps[runner.name])
                time.sleep(0.02)  # the last one's idle threads fall asleep
            rates.append(runners[0].ask("rate"))
            turn += 1
        for runner in runners:
            low, middle, high = np.percentile(runner.times, [25, 50, 75]) * 1e3
            row[f"{runner.name}_ms"] = float(middle)
            row[f"{runner.name}_quartiles_ms"] = [float(low), float(high)]
            row[f"{runner.name}_best_ms"] = min(runner.times) * 1e3
            peak, step = runner.ask("memory")
            row[f"{runner.name}_peak_mb"], row[f"{runner.name}_step_mb"] = peak, step
            if runner.name != "minitx":
                row[f"ratio_{runner.name}"] = row[f"{runner.name}_ms"] / row["minitx_ms"]
                row[f"ratio_best_{runner.name}"] = (
                    row[f"{runner.name}_best_ms"] / row["minitx_best_ms"]
                )
        row["matmul_gflops"] = max(rates)
        row["matmul_gflops_median"] = statistics.median(rates)
        row["gflops"] = row["gflop"] / row["minitx_ms"] * 1e3
        row["matmul_share"] = row["gflops"] / row["matmul_gflops_median"]
        row["matmul_share_best"] = row["gflop"] / row["minitx_best_ms"] * 1e3 / row["matmul_gflops"]
    finally:
        for runner in runners:
            runner.close()
    return row


def machine() -> dict:
    """Processor, cores, BLAS, versions, and how busy the machine is."""
    from threadpoolctl import threadpool_info

    blas = [
        f"{i['internal_api']} {i.get('version') or ''} ({i.get('architecture', '?')})"
        for i in threadpool_info()
        if i["user_api"] == "blas"
    ]
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("numba", "torch", "jax"):
        try:
            versions[name] = __import__("importlib.metadata").metadata.version(name)
        except Exception:
            continue
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "blas": blas,
        "load": load,
    } | versions


def processor() -> str:
    """Its name, if the system tells."""
    try:
        text = Path("/proc/cpuinfo").read_text()
        return next(
            x.split(":")[1].strip() for x in text.splitlines() if x.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def show(row, peers) -> str:
    """A row of a Markdown table."""
    low, high = row["minitx_quartiles_ms"]
    cells = [
        ", ".join(map(str, row["shape"])), row["threads"],
        f"{row['minitx_ms']:.2f} ({low:.2f}–{high:.2f})", f"{row['gflops']:.0f}",
        f"{row['matmul_share']:.0%}", f"{row['minitx_peak_mb']:.0f} (+{row['minitx_step_mb']:.0f})",
    ]  # fmt: skip
    for peer in peers:
        low, high = row[f"{peer}_quartiles_ms"]
        cells += [
            f"{row[f'{peer}_ms']:.2f} ({low:.2f}–{high:.2f})", f"**{row[f'ratio_{peer}']:.2f}**",
            f"{row[f'{peer}_peak_mb']:.0f} (+{row[f'{peer}_step_mb']:.0f})",
        ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", metavar="FILE", help="write all numbers here")
    parser.add_argument("--rows", default="1,2,3,4,5", help="which shapes, from 1")
    parser.add_argument("--threads", default="1,2", help="numbers of threads")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--peers", default=None, help="comma-separated; default: all installed")
    options = parser.parse_args()
    peers = [name for name in installed() if name != "minitx"]
    if options.peers is not None:
        peers = [name for name in peers if name in options.peers.split(",")]
    about = machine()
    print(f"{about['processor']}, {about['cores']} cores; {', '.join(about['blas'])}; ", end="")
    print(
        ", ".join(
            f"{k} {about[k]}" for k in ("python", "numpy", "numba", "torch", "jax") if k in about
        )
    )
    print(f"load average at the start: {about['load']:.1f}" if about["load"] is not None else "")
    head = ["B, T, V, d, H, L", "threads", "minitx ms (quartiles)", "GFLOP/s", "matmul share", "MB"]
    for peer in peers:
        head += [f"{peer} ms", "ratio", "MB"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    rows = []
    for threads in map(int, options.threads.split(",")):
        for number in map(int, options.rows.split(",")):
            row = measure(SHAPES[number - 1], threads, options.seconds, ["minitx", *peers])
            rows.append(row)
            print(show(row, peers), flush=True)
            if options.json:
                Path(options.json).write_text(
                    json.dumps({"machine": about, "rows": rows}, indent=1)
                )


if __name__ == "__main__":
    main()
