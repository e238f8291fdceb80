"""How time and memory of a training step grow with length, width, depth and batch.

    python tests/benchmarks/scaling.py [--out scaling.png] [--json FILE] [--threads 1]

One of T, d, L and B is varied, the others stay at the reference shape. The sizes take turns, so that
a busy moment of the machine hits all of them; a size's time is the best of its steps. Memory is the
peak above that of a tiny model. The exponent is the slope of log(time) over log(size) through the
three largest sizes, where fixed costs count least: 1 means that twice the size takes twice as long.
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


TINY = {"B": 1, "T": 4, "V": 64, "d": 16, "H": 4, "L": 1}
LARGEST = 3  # sizes through which the exponent is fitted


def measure(shapes, threads, rounds=4, steps=5):
    """For each shape, milliseconds (the best step) and megabytes of the process at its peak."""
    runners = [Contender("minitx", list(shape.values()), threads) for shape in shapes]
    try:
        best = [np.inf] * len(runners)
        for _ in range(rounds):
            for i, runner in enumerate(runners):
                best[i] = min(best[i], *runner.ask("run", steps))
        return [(1e3 * s, r.ask("memory")[1]) for s, r in zip(best, runners, strict=True)]
    finally:
        for runner in runners:
            runner.close()


def exponent(sizes, values):
    """Slope in double-logarithmic axes, at the large end."""
    return float(np.polyfit(np.log(sizes[-LARGEST:]), np.log(values[-LARGEST:]), 1)[0])


def draw(result, path):
    """Time and memory over size, a column for each sweep."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    from minitx.plots import style

    figure, axes = style.figure(ncols=len(result), nrows=2, panel=(3.6, 2.8))
    for column, (letter, sweep) in enumerate(result.items()):
        for row, (key, label) in enumerate((("ms", "ms per step"), ("mb", "MB"))):
            ax = np.reshape(axes, (2, -1))[row, column]
            ax.loglog(sweep["sizes"], sweep[key], "o-")
            ax.xaxis.set_major_locator(NullLocator())
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_xticks(sweep["sizes"], [str(size) for size in sweep["sizes"]])
            ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_minor_locator(NullLocator())
            ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.set_xlabel(f"{sweep['name']} {letter}")
            ax.set_ylabel(label)
            ax.set_title(f"{label.split()[0]} ~ {letter}$^{{{sweep[f'exponent_{key}']:.2f}}}$")
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="scaling.png", help="where the figure goes")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sweeps", default="T,d,L,B")
    options = parser.parse_args()
    result = {}
    for _ in range(2):  # the first may compile
        [(_, least)] = measure([TINY], options.threads)
    print("| varied | sizes | ms | exponent | MB | exponent |\n|---|---|---|---|---|---|")
    for key in options.sweeps.split(","):
        name, sizes = SWEEPS[key]
        pairs = measure([REFERENCE | {key: size} for size in sizes], options.threads)
        ms, mb = zip(*pairs, strict=True)
        mb = [max(m - least, 0.1) for m in mb]
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
