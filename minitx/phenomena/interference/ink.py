"""How many hard distractors spoil the answer? The first drop of ink does most of the harm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import claim_line, curves, mean, rows_of
from minitx.phenomena.interference._circuit import look
from minitx.phenomena.interference._memory import needle_attention
from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.recipe import train
from minitx.tasks.needles import Needles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import Results

SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
DROP = SHARES.index(0.2)  # the drop of ink
FITTED = SHARES.index(0.5)  # the one share at which the closed form's two numbers are read off


@dataclass(frozen=True)
class Settings(Recipe):
    """One layer, one head; what the distractors are in training and in the test."""

    n_layers: int = 1
    n_heads: int = 1
    init_std: float = 0.125
    embed_std: float | None = 0.3
    lr: float = 3e-3
    steps: int = 400
    n_attributes: int = 3
    train_distractors: int = 16
    train_hard_share: float = 0.0  # negative: each training sequence draws its own from U[0, 1]
    test_distractors: int = 256
    test_hard_differs: int = 1
    test_sequences: int = 500


@register
class Ink(Experiment):
    """Train on easy distractors; test with a growing share of hard ones, their number constant."""

    name = "interference.ink"
    question = "Does a small share of misleading distractors do most of the harm?"
    mechanism = (
        "Softmax attention weighs the item that fits the query against the sum of exp(score) over "
        "all others. A distractor that shares two of three attributes with the needle scores only "
        "a third as far below it as one that shares none, so its exp(score) is many times larger: "
        "a few hard ones outweigh hundreds of easy ones. With score gaps Δh and Δe the needle's "
        "attention is 1/(1 + N[p exp(-Δh) + (1-p) exp(-Δe)]), which falls most steeply at p = 0. "
        "Draw the 'hard' ones as easy ones, and nothing falls; train on all shares, and the gaps "
        "widen until hard ones hardly matter."
    )
    source = "The first drop of ink (2026), on hard distractors in long contexts of language models"
    seconds = 50.0
    Settings = Settings
    quick = {"steps": 300, "test_sequences": 100}

    arms = {
        "easy training": arm(text="trained on easy distractors, tested with hard ones among them"),
        "hard as easy": arm(
            test_hard_differs=3, control=True, text="the same, but 'hard' ones are drawn as easy"
        ),
        "mixed training": arm(
            train_hard_share=-1.0, control=True, text="trained with every share of hard ones"
        ),
        "two attributes": arm(
            n_attributes=2, text="two attributes: a hard one is half as far as an easy one"
        ),
    }

    measured = {
        "accuracy": f"Share of right answers at shares p = {SHARES} of hard distractors",
        "accuracy_0": "Accuracy with easy distractors only",
        "accuracy_1": "Accuracy with hard distractors only",
        "attention": "Attention of the query on the needle by p, mean over sequences",
        "accuracy_drop": "(acc(0) - acc(.2)) / (acc(0) - acc(1)): share of the harm done by p = .2",
        "attention_drop": "The same of the needle's attention",
        "gap_easy": "Δe = ln(mean attention on the needle / on an easy distractor) at p = .5, nats",
        "gap_hard": "Δh, the same of a hard distractor",
        "gap_ratio": "Δh/Δe; 1/3 if scores are sums over three attributes and all gaps alike",
        "score_ratio": "Mean score gap of a hard distractor over that of an easy one, at p = .5",
        "predicted": "The closed form's attention by p, with Δh and Δe from p = .5 alone",
        "form_error": "Largest difference of attention and closed form over all p",
        "form_correlation": "Correlation of the two over p",
    }

    claims = [
        at_least("accuracy_0", 0.97, arm="easy training", text="Easy distractors do no harm"),
        at_most("accuracy_1", 0.45, arm="easy training", text="Hard ones spoil the answer"),
        at_least(
            "accuracy_drop",
            0.38,
            arm="easy training",
            text="A fifth of hard ones does over a third of the harm to the answers",
        ),
        at_least(
            "attention_drop",
            0.65,
            arm="easy training",
            text="... and two thirds of the harm to attention",
        ),
        at_least("gap_ratio", 0.22, arm="easy training", text="Scores add up over attributes ..."),
        at_most(
            "gap_ratio", 0.38, arm="easy training", text="... a hard one lacks a third of them"
        ),
        at_most("form_error", 0.10, arm="easy training", text="The closed form holds at every p"),
        at_least(
            "accuracy_1",
            0.97,
            arm="hard as easy",
            control=True,
            text="Drawn as easy ones, the 'hard' distractors do nothing",
        ),
        at_least(
            "accuracy_1",
            0.88,
            arm="mixed training",
            control=True,
            text="Training with hard ones takes most of their harm away",
        ),
        at_most(
            "accuracy_drop",
            0.38,
            arm="two attributes",
            control=True,
            text="With two attributes there is no such first drop",
        ),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A small test sequence in words."""
        return Needles(n_distractors=8, hard_share=0.25).describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Train one head, then look at its answers and its attention for every share."""
        share = None if settings.train_hard_share < 0 else settings.train_hard_share
        task = Needles(settings.train_distractors, share, n_attributes=settings.n_attributes)
        n = settings.test_distractors
        model, rng = train(task, settings, seed, max_len=n + 2)
        seen = []
        for p in SHARES:
            probe = Needles(n, p, settings.test_hard_differs, settings.n_attributes)
            seen.append(look(model, probe.sample(settings.test_sequences, rng)))
        accuracy, attention = (
            np.array([each[name] for each in seen]) for name in ("accuracy", "needle")
        )
        at = seen[FITTED]
        gap_easy, gap_hard = (np.log(at["needle"] / at[name]) for name in ("easy", "hard"))
        predicted = needle_attention(np.array(SHARES), n, gap_hard, gap_easy)
        return {
            "accuracy": accuracy,
            "accuracy_0": accuracy[0],
            "accuracy_1": accuracy[-1],
            "attention": attention,
            "accuracy_drop": drop(accuracy),
            "attention_drop": drop(attention),
            "gap_easy": gap_easy,
            "gap_hard": gap_hard,
            "gap_ratio": gap_hard / gap_easy,
            "score_ratio": at["hard_gap"] / at["easy_gap"],
            "predicted": predicted,
            "form_error": np.abs(attention - predicted).max(),
            "form_correlation": np.corrcoef(attention, predicted)[0, 1],
        }

    def draw(self, results: Results) -> Figure:
        """Answers and attention by share of hard distractors; the harm done by the first fifth."""
        fig, (left, middle, right) = plots.figure(
            ncols=3, size=(13.0, 4.6), width_ratios=[1.1, 1.1, 1.0]
        )
        _curves(left, results, "accuracy", "Answers", "accuracy (chance 0.06)")
        plots.legend(left, loc="lower left", ncols=2, columnspacing=1.0)
        _curves(middle, results, "attention", "Attention on the needle", "attention weight")
        style = {"color": "black", "lw": 0.9, "ls": (0, (4, 2)), "zorder": 5}
        for run in results["easy training"]:
            line = middle.plot(SHARES, run["predicted"], label=f"closed form, {READ_OFF}", **style)
            plots.legend(middle, handles=line, loc="upper right", bbox_to_anchor=(1.0, 0.82))
        _drops(right, results)
        answers, gaze = (
            mean(results, "easy training", f"{name}_drop") for name in ("accuracy", "attention")
        )
        return plots.suptitle(
            fig,
            f"The first fifth of hard distractors does {answers:.0%} of their harm to the answers, "
            f"{gaze:.0%} to attention",
        )


def drop(curve: np.ndarray) -> float:
    """Share of the whole fall of a curve over `SHARES` that p = .2 reaches; nan if none falls."""
    whole = curve[0] - curve[-1]
    return float((curve[0] - curve[DROP]) / whole) if whole > 0.02 else np.nan


# ---- the figure

READ_OFF = f"from p = {SHARES[FITTED]:g} alone"
LOOKS = {
    "easy training": "treatment",
    "hard as easy": "control",
    "mixed training": plots.Look(plots.OKABE_ITO["green"], "v", "--", "///", filled=False),
    "two attributes": "comparison",
}


def _curves(ax: Axes, results: Results, measure: str, title: str, y: str) -> None:
    curves(ax, results, measure, SHARES, looks=LOOKS, thin=True)
    ax.axvspan(0.0, SHARES[DROP], color="0.93", zorder=0)
    ax.set_ylim(-0.12, 1.05)
    for name in results.arms:  # what is claimed of the right end
        claim_line(ax, results, f"{measure}_1", name, span=(0.94, 1.04))
    plots.label(ax, title, x="share of hard distractors, p", y=y)


def _drops(ax: Axes, results: Results) -> None:
    which = {
        f"{name}:\n{word}": (name, f"{measure}_drop")
        for measure, word in (("accuracy", "answers"), ("attention", "attention"))
        for name in ("easy training", "two attributes")
    }
    x = "share of the harm done by p = 1"
    title = f"Harm done by p = {SHARES[DROP]:g}"
    rows_of(ax, results, which, looks=LOOKS, title=title, x=x, limits=(0, 1))
    ax.axvline(SHARES[DROP], color="0.4", lw=1.2)
    style = {"textcoords": "offset points", "rotation": 90, "ha": "right", "va": "top"}
    at = (SHARES[DROP], -0.55)
    ax.annotate("in proportion", at, xytext=(-4, 0), fontsize=plots.FONT["tick"], **style)
