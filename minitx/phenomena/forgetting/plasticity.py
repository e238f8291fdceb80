"""Ninety tasks in a row: the network stops learning, and what keeps it able to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.autograd import no_grad
from minitx.continual import L2, ShrinkAndPerturb, Strategy
from minitx.errors import choose
from minitx.interp.similarity import effective_rank
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.nn import Transformer
from minitx.optim import Adam
from minitx.phenomena import figures
from minitx.phenomena.recipe import Recipe, fit_model, streams
from minitx.tasks.facts import RandomLabels
from minitx.training import accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results


@dataclass(frozen=True)
class Settings(Recipe):
    """A series of fresh random-label tasks, all equally hard, learnt by one network."""

    remedy: str = "none"
    keep_state: bool = False  # keep Adam's running means from task to task
    fresh: bool = False  # a new network for every task
    l2: float = 1e-3
    shrink: float = 0.005
    noise: float = 0.01
    tasks: int = 90
    items: int = 64
    labels: int = 8
    d_model: int = 32
    n_heads: int = 2
    positions: str = "learned"
    mlp: str = "relu"
    bias: bool = True
    steps: int = 40  # a task, each on the full batch
    lr: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)

    def task(self, seed: int, number: int) -> RandomLabels:
        """The `number`-th task of a series; arms with the same seed see the same series."""
        return RandomLabels(seed=1000 * seed + number, n_items=self.items, n_labels=self.labels)


STREAM = "blocks.0.hook_resid_post"
REMEDIES = {
    "none": lambda s: Strategy(),
    "l2": lambda s: L2(s.l2),
    "shrink and perturb": lambda s: ShrinkAndPerturb(s.shrink, s.noise),
}


@register
class Plasticity(Experiment):
    """Accuracy at the end of each task, over ninety tasks."""

    name = "forgetting.plasticity"
    question = "Does a network that has learnt ninety tasks still learn the ninety-first as well?"
    mechanism = (
        "Every task is as hard as the first: random strings, random labels. But each leaves the weights "
        "larger and the representation flatter: fewer directions carry the items apart (the effective "
        "rank falls), and steps of the same size change a large weight relatively less. So learning "
        "gets slower until it fails. A fresh network for every task shows that the tasks do not get "
        "harder; a pull on the weights, with or without noise, keeps the network young."
    )
    source = (
        "Dohare et al. (2024), Loss of Plasticity in Deep Continual Learning; Ash & Adams (2020), "
        "shrink and perturb; Roy & Vetterli (2007), effective rank"
    )
    seconds = 60.0
    Settings = Settings
    quick = {"tasks": 24}

    arms = {
        "Adam": arm(text="one network, Adam started afresh for each task"),
        "Adam, state kept": arm(
            keep_state=True, text="Adam's running means go on from task to task"
        ),
        "L2": arm(
            remedy="l2", control=True, text="a pull on all weights, 0.001 · θ in the gradient"
        ),
        "shrink + noise": arm(
            remedy="shrink and perturb",
            control=True,
            text="each step: θ shrinks by 0.5 %, noise 0.01",
        ),
        "fresh network": arm(fresh=True, control=True, text="new weights for every task"),
    }

    measured = {
        "accuracy": "share of the 64 items known at the end of each task, float [tasks]",
        "rank": "effective rank exp(−Σ p ln p), p = σ/Σσ, of the last token's stream, float [tasks]",
        "norm": "‖w‖, Euclidean norm of all weights at the end of each task, float [tasks]",
        "first": "mean accuracy over the first sixth of the tasks",
        "last": "mean accuracy over the last sixth of the tasks",
        "drop": "first − last: accuracy lost over the series",
        "rank_ratio": "effective rank, last sixth / first sixth",
        "norm_ratio": "‖w‖, last sixth / first sixth",
    }

    claims = [
        at_least("drop", 0.2, arm="Adam", text="Late tasks are learnt worse than early ones"),
        at_least("drop", 0.3, arm="Adam, state kept", text="More so if Adam's state is kept"),
        at_most("rank_ratio", 0.75, arm="Adam", text="The representation has gone flat"),
        at_least("norm_ratio", 3.0, arm="Adam", text="The weights have grown"),
        *(
            at_most("drop", 0.05, arm=name, control=True, text=f"No loss of plasticity: {words}")
            for name, words in [
                ("L2", "weights pulled back"),
                ("shrink + noise", "weights shrunk and shaken"),
                ("fresh network", "the tasks themselves do not get harder"),
            ]
        ),
        *(
            at_least(
                "rank_ratio", 0.85, arm=name, control=True, text="The representation stays rich"
            )
            for name in ("L2", "shrink + noise")
        ),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """An item in words."""
        return Settings().task(0, 0).describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Learn one task after another, and look at the network after each."""
        init, training, _ = streams(seed)
        config = settings.config(settings.task(seed, 0))
        model = Transformer(config, rng=init)
        # Without an optimizer of its own, every call of `fit_model` starts Adam afresh.
        kept = (
            Adam(model.parameters(), settings.lr, settings.betas) if settings.keep_state else None
        )
        remedy = choose(REMEDIES, settings.remedy, "remedy")(settings)
        got: dict[str, list[float]] = {"accuracy": [], "rank": [], "norm": []}
        for number in range(settings.tasks):
            batch = settings.task(seed, number).everything()
            if settings.fresh and number:
                model = Transformer(config, rng=init)
            fit_model(model, lambda size, rng, batch=batch: batch, settings, training,
                      optimizer=kept, callbacks=[remedy])  # fmt: skip
            with no_grad():
                _, cache = model.run_with_cache(batch.tokens, names_filter=STREAM)
            got["accuracy"].append(accuracy(model, batch))
            got["rank"].append(effective_rank(cache[STREAM][:, -1]))
            got["norm"].append(np.sqrt(sum(np.sum(p.data**2) for p in model.parameters())))
        sixth = max(settings.tasks // 6, 1)
        first = {name: float(np.mean(values[:sixth])) for name, values in got.items()}
        last = {name: float(np.mean(values[-sixth:])) for name, values in got.items()}
        return {name: np.array(values, dtype=float) for name, values in got.items()} | {
            "first": first["accuracy"],
            "last": last["accuracy"],
            "drop": first["accuracy"] - last["accuracy"],
            "rank_ratio": last["rank"] / first["rank"],
            "norm_ratio": last["norm"] / first["norm"],
        }

    def draw(self, results: Results) -> Figure:
        """Accuracy, effective rank and weight norm over the tasks; below, late against early."""
        from minitx.plots import FONT, figure, label, suptitle

        fig, axes = figure(ncols=3, nrows=2, size=(14, 7.4), height_ratios=[1.5, 1])
        looks = {name: i for i, name in enumerate(results.arms)} | {"fresh network": "control"}
        shown = {
            "accuracy": ("Learning fails with time", "accuracy at the end of a task"),
            "rank": ("The representation goes flat", "effective rank of the stream"),
            "norm": ("The weights grow", "‖w‖"),
        }
        for ax, (measure, (title, unit)) in zip(axes[0], shown.items(), strict=True):
            figures.curves(ax, results, measure, looks=looks, markers=False)
            label(ax, title, x="task number", y=unit)
        axes[0, 0].set_ylim(0, 1.03)
        axes[0, 0].axhline(1 / results.settings["Adam"].labels, color="0.6", lw=1)
        axes[0, 2].set_yscale("log")
        lines, names = axes[0, 0].get_legend_handles_labels()
        fig.legend(lines, names, loc="outside lower center", ncols=5, frameon=False,
                   fontsize=FONT["tick"], handlelength=3.2)  # fmt: skip
        change = {
            "drop": "accuracy, first sixth − last sixth",
            "rank_ratio": "effective rank, last sixth / first sixth",
            "norm_ratio": "‖w‖, last sixth / first sixth",
        }
        for ax, (measure, unit) in zip(axes[1], change.items(), strict=True):
            figures.rows(ax, results, measure, x=unit, looks=looks)
        for ax in axes[1, 1:]:
            ax.set_yticklabels([])
        return suptitle(
            fig, "Loss of plasticity: after many tasks a network stops learning new ones"
        )
