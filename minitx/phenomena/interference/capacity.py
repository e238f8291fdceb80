"""What can a head hold? An additive memory fills up as predicted; softmax does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.autograd import Tensor, ops, primitive
from minitx.errors import choose
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.nn import Embedding, Linear, Module, Parameter
from minitx.phenomena._common import by_arm, claimed, mean
from minitx.phenomena.interference import _memory as memory
from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.recipe import fit_model
from minitx.tasks.recall import KeyValueRecall
from minitx.training import correct

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import Results

PAIRS = (2, 4, 8, 16, 32, 65, 128, 256)  # stored at width 64
ARGMAX_PAIRS = (8, 16, 32, 64, 128)  # stored at width 32


@dataclass(frozen=True)
class Settings(Recipe):
    """How pairs are stored and read; random keys first, then trained ones."""

    rule: str = "linear"
    # Random keys: independent memories for each point of the curves, one read from each.
    d: int = 64
    d_argmax: int = 32
    trials: int = 200
    # Trained keys.
    d_model: int = 16
    n_pairs: int = 48
    n_keys: int = 48
    n_values: int = 16
    n_queries: int = 16
    lr: float = 1e-2
    steps: int = 600
    test_sequences: int = 500


@register
class Capacity(Experiment):
    """Store random pairs in three kinds of memory and read them; then let the keys be learned."""

    name = "interference.capacity"
    question = "How many pairs can a head hold before they get in each other's way?"
    mechanism = (
        "Without softmax a head is an additive memory S = Σ v kᵀ. Reading it with one key returns "
        "that key's value plus a little of every other, as much as their keys overlap: for N "
        "random unit keys of width d the error is (N - 1)/d of the value's squared length. "
        "Softmax at a high inverse temperature makes overlaps exponentially small and holds "
        "exponentially many. The delta rule, which first takes away what its key would read, does "
        "not hold more random keys: it trades them, exact for the newest and lost for the oldest. "
        "What it can do and addition cannot is overwrite."
    )
    source = (
        "Kohonen (1972) and Anderson (1972), correlation-matrix memories; Ramsauer et al. (2020), "
        "Hopfield Networks is All You Need; Schlag et al. (2021), Linear Transformers Are Secretly "
        "Fast Weight Programmers"
    )
    seconds = 30.0
    Settings = Settings
    quick = {"steps": 200, "trials": 50, "test_sequences": 100}

    arms = {
        "linear": arm(text="additive memory: attention without softmax"),
        "softmax": arm(rule="softmax", control=True, text="softmax at inverse temperature 2√d"),
        "delta": arm(rule="delta", text="additive memory with the delta rule"),
    }

    measured = {
        "error": f"‖read - v‖²/‖v‖² for N = {PAIRS} random unit keys of width d, mean",
        "predicted": "Its closed form: (N - 1)/d; for delta the mean of `delta_error` over ages",
        "deviation": (
            "Largest |error - predicted| over N in standard errors (by the closed form of the "
            "spread for linear, by the sample's for delta)"
        ),
        "error_65": "Relative error at N = 65 (for linear (N - 1)/d = 1 at d = 64)",
        "error_256": "Relative error at N = 256",
        "gold_deviation": "Softmax: largest |attention on the right key - closed form| over N",
        "argmax": f"Share of reads nearest to the right of N = {ARGMAX_PAIRS} values, width 32",
        "argmax_128": "That at N = 128",
        "orthonormal_error": "Relative error for 32 orthonormal keys of width 64",
        "overwrite_error": "Relative error after 32 orthonormal keys are all written a second time",
        "trained": "Accuracy with learned keys and values, width 16, 48 pairs",
        "by_age": "Trained accuracy by number of pairs stored after the one asked for",
    }

    claims = [
        at_most("deviation", 5, arm="linear", text="The error is (N - 1)/d at every N"),
        at_least("error_65", 0.95, arm="linear", text="At N = d + 1 it equals the signal ..."),
        at_most("error_65", 1.05, arm="linear", text="... and is no larger"),
        at_most("argmax_128", 0.55, arm="linear", text="At N = 4d half of the reads go wrong"),
        at_most(
            "error_256",
            0.01,
            arm="softmax",
            control=True,
            text="Softmax has no error at N = 4d",
        ),
        at_most(
            "gold_deviation", 3e-4, arm="softmax", text="Its attention follows the closed form"
        ),
        at_least("argmax_128", 0.99, arm="softmax", control=True, text="Its reads do not go wrong"),
        at_most(
            "orthonormal_error", 1e-12, arm="linear", control=True, text="No overlap, no error"
        ),
        at_most("deviation", 5, arm="delta", text="The delta rule's error is as predicted, too"),
        at_least("overwrite_error", 0.9, arm="linear", text="Addition cannot overwrite"),
        at_most("overwrite_error", 1e-12, arm="delta", text="The delta rule overwrites exactly"),
        at_least(
            "trained", 0.97, arm="softmax", control=True, text="Trained, softmax holds all pairs"
        ),
        at_least(
            "trained",
            0.03,
            arm="softmax",
            minus="linear",
            text="Learned keys do not save addition",
        ),
        at_most(
            "trained",
            0.0,
            arm="delta",
            minus="linear",
            text="The delta rule does not hold more pairs than addition",
        ),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A small sequence of the trained task in words."""
        return KeyValueRecall(n_keys=16, n_pairs=8, n_queries=1).describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Random keys at two widths, orthonormal keys, and one trained memory."""
        rng = np.random.default_rng(seed)
        return (
            random_keys(settings, rng)
            | nearest_values(settings, rng)
            | orthonormal_keys(settings, rng)
            | trained_keys(settings, seed)
        )

    def draw(self, results: Results) -> Figure:
        """Error by number of pairs, reads that go wrong, overwriting, and what training makes."""
        fig, axes = plots.figure(ncols=2, nrows=2, size=(11.0, 8.0))
        _errors(axes[0, 0], results)
        _reads(axes[0, 1], results)
        _overwrites(axes[1, 0], results)
        _trained(axes[1, 1], results)
        linear, softmax = (mean(results, name, "error_65") for name in ("linear", "softmax"))
        return plots.suptitle(
            fig,
            f"One pair more than its width: error / signal is {linear:.2f} for addition,\n"
            f"{softmax:.0e} for softmax",
        )


# ---- random keys: nothing is trained

READS = {"linear": memory.read_linear, "delta": memory.read_delta}


def read(rule: str, keys: np.ndarray, values: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Read a memory by the name of its rule; softmax at inverse temperature 2√d.

    keys [B, N, d], values [B, N, d_v], query [B, Q, d] -> [B, Q, d_v]
    """
    if rule == "softmax":
        return memory.read_softmax(keys, values, query, 2.0 * np.sqrt(keys.shape[-1]))
    return choose(READS, rule, "rule")(keys, values, query)


def random_keys(settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    """Errors against their closed forms, one read from each of many memories."""
    rule, d, trials = settings.rule, settings.d, settings.trials
    error, predicted, deviation, gold = (np.zeros(len(PAIRS)) for _ in range(4))
    rows = np.arange(trials)
    for i, n in enumerate(PAIRS):
        keys, values = (memory.unit_vectors(rng, trials, n, d) for _ in range(2))
        asked = rng.integers(n, size=trials)
        query, value = keys[rows, asked][:, None], values[rows, asked]
        errors = memory.relative_error(read(rule, keys, values, query)[:, 0], value)
        error[i] = errors.mean()
        if rule == "softmax":  # its closed form is of the attention, not of the error
            weights = memory.softmax_weights(keys, query, 2.0 * np.sqrt(d))[rows, 0, asked]
            gold[i] = weights.mean() - memory.softmax_gold(n, d, 2.0 * np.sqrt(d))
            predicted[i] = np.nan
            continue
        if rule == "linear":
            predicted[i] = memory.linear_error(n, d)
            spread = predicted[i] * memory.linear_error_sd(n, d, d)
        else:
            predicted[i], spread = memory.delta_error(n, d).mean(), errors.std()
        deviation[i] = abs(error[i] - predicted[i]) / (spread / np.sqrt(trials))
    return {
        "error": error,
        "predicted": predicted,
        "deviation": np.nan if rule == "softmax" else deviation.max(),
        "error_65": error[PAIRS.index(65)],
        "error_256": error[PAIRS.index(256)],
        "gold_deviation": np.abs(gold).max() if rule == "softmax" else np.nan,
    }


def nearest_values(settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    """How often a read lies nearer to the right value than to any other stored one."""
    found = np.zeros(len(ARGMAX_PAIRS))
    for i, n in enumerate(ARGMAX_PAIRS):
        shape = (max(settings.trials // 20, 1), n, settings.d_argmax)
        keys, values = memory.unit_vectors(rng, *shape), memory.unit_vectors(rng, *shape)
        out = read(settings.rule, keys, values, keys)  # all pairs are asked for
        found[i] = ((out @ values.swapaxes(1, 2)).argmax(axis=-1) == np.arange(n)).mean()
    return {"argmax": found, "argmax_128": found[ARGMAX_PAIRS.index(128)]}


def orthonormal_keys(settings: Settings, rng: np.random.Generator) -> dict[str, Any]:
    """Keys at right angles, written once and then all of them a second time."""
    n, rule = settings.d // 2, settings.rule
    keys = memory.orthonormal(rng, max(settings.trials // 10, 1), n, settings.d)
    old, new = (memory.unit_vectors(rng, len(keys), n, settings.d) for _ in range(2))
    once = read(rule, keys, old, keys)
    twice = read(
        rule, np.concatenate([keys, keys], axis=1), np.concatenate([old, new], axis=1), keys
    )
    return {
        "orthonormal_error": memory.relative_error(once, old).mean(),
        "overwrite_error": memory.relative_error(twice, new).mean(),
    }


# ---- trained keys


def trained_keys(settings: Settings, seed: int) -> dict[str, Any]:
    """Learn keys and values for the task of recalling one of `n_pairs` random pairs."""
    task = KeyValueRecall(
        n_keys=settings.n_keys,
        n_pairs=settings.n_pairs,
        n_values=settings.n_values,
        n_queries=settings.n_queries,
    )
    init_rng, train_rng, test_rng = np.random.default_rng(seed).spawn(3)
    model = Memory(settings.rule, task, settings.d_model, init_rng)
    fit_model(model, task, settings, train_rng)
    batch = task.sample(settings.test_sequences, test_rng)
    right = correct(model, batch).reshape(batch.size, -1)
    n = settings.n_pairs
    age = n - 1 - batch.info["item"][:, n:]
    by_age = [right[age == a].mean() if (age == a).any() else np.nan for a in range(n)]
    return {"trained": right.mean(), "by_age": by_age}


class Memory(Module):
    """A table of unit keys and of values, a memory of the pairs in the context, a readout."""

    def __init__(self, rule: str, task: KeyValueRecall, d: int, rng: np.random.Generator) -> None:
        self.rule, self.n_pairs = choose(RULES, rule, "rule"), task.n_pairs
        self.table = Embedding(task.vocab_size, d, std=1.0 / np.sqrt(d), rng=rng)
        self.readout = Linear(d, task.out_size, bias=False, std=1.0 / np.sqrt(d), rng=rng)
        self.log_beta = Parameter(np.array(np.log(2.0 * np.sqrt(d)), np.float32))

    def forward(self, tokens: np.ndarray, mask: np.ndarray | None = None) -> Tensor:
        """Logits [B, T, V] at every position, of which the task looks at the queries.

        Queries are read from the finished memory, so that they see all pairs and no other query:
        the task's `mask` is kept by construction.
        """
        keys = self.table(tokens[..., 0])  # [B, T, D]
        keys = keys / ops.sqrt(ops.sum(keys * keys, axis=-1, keepdims=True))
        stored, values = keys[:, : self.n_pairs], self.table(tokens[:, : self.n_pairs, 1])
        return self.readout(self.rule(self, keys, stored, values))


def _linear(model: Memory, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return ops.matmul(ops.matmul(query, ops.swapaxes(keys, 1, 2)), values)


def _softmax(model: Memory, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    scores = ops.matmul(query, ops.swapaxes(keys, 1, 2)) * ops.exp(model.log_beta)
    return ops.matmul(ops.softmax(scores), values)


def _delta(model: Memory, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    # Each write stores the value less what its key would read: u_t = v_t - Σ_{s<t} (k_t·k_s) u_s.
    overlap = ops.matmul(keys, ops.swapaxes(keys, 1, 2))
    return _linear(model, query, keys, forward_substitution(overlap, values))


RULES = {"linear": _linear, "softmax": _softmax, "delta": _delta}


@primitive
def forward_substitution(matrix, values):
    """Solve ``(I + L) u = values``, L the part of `matrix` strictly below the diagonal.

    ``matrix`` [..., N, N], ``values`` [..., N, D] -> u [..., N, D]
    """
    inverse = np.linalg.inv(np.tril(matrix, -1) + np.eye(matrix.shape[-1], dtype=matrix.dtype))
    u = inverse @ values

    def back(g):  # by the values: the transposed system
        return inverse.swapaxes(-1, -2) @ g

    return u, lambda g: -np.tril(back(g) @ u.swapaxes(-1, -2), -1), back


# ---- the figure

LOOKS = {"linear": plots.TREATMENT, "softmax": plots.CONTROL, "delta": plots.COMPARISON}


def _lines(ax: Axes, results: Results, x: np.ndarray, measure: str) -> None:
    for name in results.arms:
        if results[name]:
            plots.seed_lines(ax, x, results.values(name, measure), name, LOOKS[name])


def _errors(ax: Axes, results: Results) -> None:
    x = np.array(PAIRS) / 64
    _lines(ax, results, x, "error")
    style = {"color": "black", "lw": 1.1, "ls": (0, (2, 2)), "zorder": 5}
    for name, label in (("linear", "closed form"), ("delta", None)):
        for run in results[name][:1]:  # the same for every seed
            ax.plot(x, run["predicted"], label=label, **style)
    ax.set_xscale("log", base=2)
    ax.set_xticks([2.0**k for k in range(-5, 3)], ["1/32", "", "1/8", "", "1/2", "1", "2", "4"])
    plots.label(
        ax, "Random keys: errors as predicted", x="pairs stored / width", y="error / signal"
    )
    plots.legend(ax, loc="upper left")


def _reads(ax: Axes, results: Results) -> None:
    _lines(ax, results, np.array(ARGMAX_PAIRS) / 32, "argmax")
    ax.set_xscale("log", base=2)
    ax.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    ax.set_ylim(0, 1.05)
    claims = claimed(results, "argmax_128")
    for name, limit in claims["threshold"].items():
        plots.threshold_line(ax, limit, claims["direction"][name], span=(3.4, 4.6))
    plots.label(
        ax, "Reads nearest to the right value", x="pairs stored / width", y="share of reads"
    )


def _overwrites(ax: Axes, results: Results) -> None:
    limits = claimed(results, "overwrite_error")
    plots.bars(ax, by_arm(results, "overwrite_error"), roles=LOOKS, **limits)
    plots.label(ax, "Only delta overwrites", y="error / signal after a second write")


def _trained(ax: Axes, results: Results) -> None:
    for name in results.arms:
        if results[name]:
            ys = results.values(name, "by_age")
            label = f"{name}: {mean(results, name, 'trained'):.2f}"
            x = np.arange(ys.shape[1])
            plots.seed_lines(ax, x, ys, label, LOOKS[name], thin=False, markers=False)
    ax.set_ylim(0, 1.05)
    plots.label(
        ax,
        "Trained keys, 48 pairs in width 16",
        x="pairs stored after the one asked for",
        y="accuracy",
    )
    plots.legend(ax, loc="center right", title="mean accuracy", title_fontsize=plots.FONT["tick"])
