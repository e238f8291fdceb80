"""How many earlier values of a key does it take to make a model answer with one of them?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import claim_line, curves, mean, rows
from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.recipe import train
from minitx.tasks.updates import KeyValueUpdates, UpdateProbe, hide_overwritten
from minitx.training import accuracy, answers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import Results

UPDATES = (1, 2, 3, 4, 6, 8, 12, 16)
SLOPE_FROM = 3  # below it accuracy is at its ceiling: see `measured`
LAGS = 5


@dataclass(frozen=True)
class Settings(Recipe):
    """The common recipe, and how often a key is written in training."""

    batch_size: int = 32
    max_updates: int = 2
    longer: float = 1.0  # factor of `steps`
    test_sequences: int = 400


@register
class Proactive(Experiment):
    """Train on keys written once or twice; ask for the last value of a key written U times."""

    name = "interference.proactive"
    question = "Do values that were overwritten long ago get in the way of the one that counts?"
    mechanism = (
        "A stream of writes 'key := value'; the last value of a key is asked for. In training a "
        "key is written once or twice, and attention learns to prefer the later of two. Every "
        "further write of the same key fits the query as well as the last one does, and the last "
        "one's advantage does not grow with their number: they share the attention. So accuracy "
        "falls about linearly in the logarithm of the number of updates, at constant length of "
        "the stream, and the wrong answers are overwritten values, recent ones most. A key written "
        "once in the same streams is answered without fault. Hide the overwritten entries, or let "
        "attention mask what a later token replaced, and the effect is gone."
    )
    source = (
        "PI-LLM (2025), proactive interference in language models; Underwood (1957), in people; "
        "Leviathan et al. (2024), Selective Attention Improves Transformer"
    )
    seconds = 135.0
    Settings = Settings
    quick = {"steps": 300, "test_sequences": 250}

    arms = {
        "NoPE": arm(text="no position encoding: order only from the causal mask"),
        "ALiBi": arm(positions="alibi", text="a penalty on distance"),
        "RoPE": arm(
            positions="rotary",
            text="rotary positions; in some seeds a head of layer 1 comes to prefer recent writes",
        ),
        "learned": arm(positions="learned", text="learned absolute positions"),
        "selective": arm(
            attention="selective",
            control=True,
            text="NoPE, and a token may mask earlier ones for later queries; no new parameters",
        ),
        "trained to 16": arm(
            max_updates=16,
            init_std=0.125,
            lr=3e-3,
            longer=2.5,
            control=True,
            text="NoPE, keys written up to 16 times in training (larger initial weights, longer)",
        ),
    }

    measured = {
        "accuracy": f"Share of right answers after U = {UPDATES} writes of the key asked for",
        "at_2": "Accuracy at U = 2, the most that training shows",
        "at_16": "Accuracy at U = 16",
        "slope": (
            f"Least-squares slope of accuracy per doubling of U, over U = {SLOPE_FROM} to 16 (a "
            "range chosen in calibration, after the ceiling was seen; fixed since)"
        ),
        "r2": "Coefficient of determination of that line",
        "stale_share": "Share of the wrong answers that are overwritten values, U >= 6 pooled",
        "stale_chance": "The same if wrong answers were uniform: (U-1)/(V-1), weighted likewise",
        "lags": f"Share of those by lag (1 = the last value but one), lags 1 to {LAGS}",
        "lag_order": "The smaller of (lag 1 - lag 2) and (lag 2 - lag 3)",
        "yoked": "Accuracy in the same streams for a key written once, by U of the other key",
        "yoked_worst": "The lowest of these",
        "oracle_at_16": "Accuracy of the same model at U = 16 under a mask that hides stale writes",
    }

    claims = [
        at_least("at_2", 0.97, arm="NoPE", text="Two writes, as in training: no interference"),
        at_most("at_16", 0.35, arm="NoPE", text="Sixteen writes: the last value is mostly lost"),
        at_most(
            "slope", -0.22, arm="NoPE", text="Accuracy falls with every doubling of the writes"
        ),
        at_least("r2", 0.93, arm="NoPE", text="It falls linearly in the logarithm of their number"),
        at_least("stale_share", 0.9, arm="NoPE", text="Wrong answers are overwritten values"),
        at_least("lag_order", 0.0, arm="NoPE", text="Recent ones intrude more: lag 1 > 2 > 3"),
        at_least(
            "yoked_worst",
            0.97,
            arm="NoPE",
            control=True,
            text="In the same streams, a key written once is answered right",
        ),
        at_least(
            "oracle_at_16",
            0.97,
            arm="NoPE",
            control=True,
            text="Hide the overwritten entries from the same model, and nothing is lost",
        ),
        at_least(
            "at_16", 0.8, arm="selective", control=True, text="Selective attention repairs it"
        ),
        at_least(
            "at_16",
            0.97,
            arm="trained to 16",
            control=True,
            text="It is a failure to generalise, not to hold: training on it removes it",
        ),
        at_least("slope", 0.0, arm="ALiBi", minus="NoPE", text="ALiBi falls less than NoPE"),
        at_least("slope", 0.0, arm="RoPE", minus="NoPE", text="RoPE falls less than NoPE"),
        at_least("slope", 0.0, arm="learned", minus="ALiBi", text="Learned positions fall least"),
        at_least("slope", 0.0, arm="learned", minus="RoPE", text="... also less than RoPE"),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A test stream in words."""
        return UpdateProbe(n_updates=4).describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Train one model, then ask it after every number of updates."""
        task = KeyValueUpdates(max_updates=settings.max_updates)
        recipe = dataclasses.replace(settings, steps=round(settings.steps * settings.longer))
        model, rng = train(task, recipe, seed)
        right, yoked = np.zeros(len(UPDATES)), np.zeros(len(UPDATES))
        n_wrong = n_stale = expected = 0.0
        lags = np.zeros(LAGS)
        for i, n_updates in enumerate(UPDATES):
            # Both probes draw from the same seed: the same streams, another query at their end.
            test_seed = rng.integers(2**32)
            batch, same = (
                UpdateProbe(n_updates, asks).sample(
                    settings.test_sequences, np.random.default_rng(test_seed)
                )
                for asks in ("target", "once")
            )
            given, last = answers(model, batch), batch.info["history"][:, -1]
            right[i] = (given == last).mean()
            yoked[i] = accuracy(model, same)
            if n_updates >= 6:
                wrong = given != last
                lag = (given[:, None] == batch.info["history"])[:, ::-1]  # [B, U], column = lag
                n_wrong += wrong.sum()
                n_stale += lag[wrong, 1:].sum()
                expected += wrong.sum() * (n_updates - 1) / (task.n_values - 1)
                lags += lag[wrong, 1 : LAGS + 1].sum(axis=0)
        slope, r2 = line(np.log2(UPDATES), right, UPDATES.index(SLOPE_FROM))
        shares = lags / max(n_stale, 1.0)
        return {
            "accuracy": right,
            "at_2": right[UPDATES.index(2)],
            "at_16": right[-1],
            "slope": slope,
            "r2": r2,
            "stale_share": n_stale / n_wrong if n_wrong else np.nan,
            "stale_chance": expected / n_wrong if n_wrong else np.nan,
            "lags": shares,
            "lag_order": min(shares[0] - shares[1], shares[1] - shares[2]),
            "yoked": yoked,
            "yoked_worst": yoked.min(),
            "oracle_at_16": accuracy(model, hide_overwritten(batch)),  # the last batch
        }

    def draw(self, results: Results) -> Figure:
        """Accuracy by number of updates; what is answered instead; the slope of every arm."""
        fig, axes = plots.figure(
            mosaic=[["curve", "errors", "slope"]], size=(13.0, 4.7), width_ratios=[1.35, 0.9, 1.0]
        )
        _curves(axes["curve"], results)
        _errors(axes["errors"], results)
        x = "accuracy per doubling of U (U = 3 to 16)"
        rows(axes["slope"], results, "slope", looks=LOOKS, title="Slope of every arm", x=x)
        axes["slope"].axvline(0.0, color="black", lw=0.8)
        fall = mean(results, "NoPE", "at_16")
        once = mean(results, "NoPE", "yoked_worst")
        return plots.suptitle(
            fig,
            f"After 16 updates the last value is recalled in {fall:.0%} of cases, "
            f"a key written once in the same streams in {once:.0%}",
        )


def line(x: np.ndarray, y: np.ndarray, start: int = 0) -> tuple[float, float]:
    """Least-squares line through the points from `start` on: its slope and R².

    R² is 1 - residual/total variance, and nan for points without any variance.
    """
    x, y = np.asarray(x, float)[start:], np.asarray(y, float)[start:]
    slope, offset = np.polyfit(x, y, 1)
    total = ((y - y.mean()) ** 2).sum()
    residual = ((y - slope * x - offset) ** 2).sum()
    return float(slope), float(1.0 - residual / total) if total > 0 else np.nan


# ---- the figure

LOOKS = {
    "NoPE": 0,
    "ALiBi": 1,
    "RoPE": 2,
    "learned": 3,
    "selective": "control",
    "trained to 16": plots.Look(plots.OKABE_ITO["sky"], "v", "--", "///", filled=False),
}
YOKED = plots.Look("0.35", "s", ":", "", filled=False)


def _curves(ax: Axes, results: Results) -> None:
    x = np.log2(UPDATES)
    for name in results.arms:
        curves(ax, results, "accuracy", x, [name], looks=LOOKS, thin=name == "NoPE")
        # A training that shows every U has its claim at the ceiling, where the curves lie.
        if name != "trained to 16":
            claim_line(ax, results, "at_16", name, span=(3.75, 4.25))
    once = {"NoPE": "NoPE, key written once"}
    curves(ax, results, "yoked", x, ["NoPE"], names=once, looks={"NoPE": YOKED})
    ax.set_xticks(x, [str(n) for n in UPDATES])
    ax.set_ylim(-0.02, 1.05)
    plots.label(
        ax,
        "Accuracy falls with log U",
        x="times that the key asked for was written (U)",
        y="accuracy (chance 0.03)",
    )
    plots.legend(ax, loc="lower left")


def _errors(ax: Axes, results: Results) -> None:
    if not results["NoPE"]:
        return
    lags = results.values("NoPE", "lags")
    plots.bars(ax, {str(lag + 1): lags[:, lag] for lag in range(LAGS)})
    stale, chance = (mean(results, "NoPE", name) for name in ("stale_share", "stale_chance"))
    text = f"{stale:.0%} of wrong answers\nare overwritten values\n(by chance {chance:.0%})"
    place = {"transform": ax.transAxes, "ha": "right", "va": "top"}
    ax.text(0.97, 0.95, text, fontsize=plots.FONT["tick"], **place)
    ax.set_ylim(0, 0.6)
    plots.label(
        ax,
        "Stale answers of NoPE by lag",
        x="lag (1 = the last value but one)",
        y="share of the stale answers",
    )
