"""How time and memory of a training step grow with length, width, depth and batch.

    python tests/benchmarks/scaling.py [--out scaling.png] [--json FILE] [--threads 1]

One of T, d, L and B is varied, the others stay at the reference shape. The exponent is the slope of
log(time) over log(size) by least squares: 1 means that twice the size takes twice as long.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from train_step import Contender  # noqa: E402

REFERENCE = {"B": 16, "T": 64, "V": 64, "d": 64, "H": 4, "L": 2}
SWEEPS = {
    "T": ("positions", [16, 32, 64, 128, 256, 512]),
    "d": ("width", [16, 32, 64, 128, 256]),
    "L": ("layers", [1, 2, 4, 8]),
    "B": ("batch", [2, 4, 8, 16, 32, 64]),
}


def measure(shape, threads, steps=7):
    """(milliseconds: the best of some steps, megabytes above what is loaded at the start)"""
    runner = Contender("minitx", list(shape.values()), threads)
    try:
        runner.ask("run", 2)
        times = runner.ask("run", steps)
        return min(times) * 1e3, runner.ask("memory")[1]
    finally:
        runner.close()


def exponent(sizes, values):
    """Slope in double-logarithmic axes."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def draw(result, path):
    """Time and memory over size, a column for each sweep."""
    from minitx.plots import style

    figure, axes = style.figure(ncols=len(result), nrows=2)
    for column, (_, sweep) in enumerate(result.items()):
        for row, (key, label) in enumerate((("ms", "ms for a step"), ("mb", "MB"))):
            ax = np.reshape(axes, (2, -1))[row, column]
            ax.loglog(sweep["sizes"], sweep[key], "o-")
            ax.set_xlabel(sweep["name"])
            ax.set_ylabel(label)
            ax.set_title(f"exponent {sweep[f'exponent_{key}']:.2f}")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="scaling.png", help="where the figure goes")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sweeps", default="T,d,L,B")
    options = parser.parse_args()
    result = {}
    print("| varied | sizes | ms | exponent | MB | exponent |\n|---|---|---|---|---|---|")
    for key in options.sweeps.split(","):
        name, sizes = SWEEPS[key]
        pairs = [measure(REFERENCE | {key: size}, options.threads) for size in sizes]
        ms, mb = zip(*pairs, strict=True)
        mb = [max(m, 0.1) for m in mb]
        sweep = {"name": name, "sizes": sizes, "ms": ms, "mb": mb}
        sweep |= {f"exponent_{k}": exponent(sizes, sweep[k]) for k in ("ms", "mb")}
        result[key] = sweep
        lists = [", ".join(f"{v:.3g}" for v in values) for values in (sizes, ms, mb)]
        print(f"| {name} | {lists[0]} | {lists[1]} | {sweep['exponent_ms']:.2f} | {lists[2]} | "
              f"{sweep['exponent_mb']:.2f} |", flush=True)  # fmt: skip
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1))
    draw(result, options.out)


if __name__ == "__main__":
    main()
