"""Four tasks in a row: what is left of the first when the last is learnt, and what helps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.continual import EWC, Freeze, Replay, Strategy, metrics
from minitx.errors import choose
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena import figures
from minitx.phenomena.recipe import Recipe, fit_model, streams, untrained
from minitx.tasks.base import join
from minitx.tasks.facts import Facts
from minitx.training import accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results


@dataclass(frozen=True)
class Settings(Recipe):
    """Four tables of facts, one after another, and how to keep the earlier ones."""

    strategy: str = "naive"
    ewc: float = 100.0  # strength of EWC's penalty
    replay: int = 16  # stored facts of each earlier table
    tasks: int = 4
    facts: int = 32
    labels: int = 16
    d_model: int = 32
    n_heads: int = 2
    positions: str = "learned"
    mlp: str = "gelu"
    bias: bool = True
    steps: int = 150  # a table, each on the full batch
    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)

    def series(self, seed: int) -> list[Facts]:
        """The tables; no two share a question, all share the labels and the output head."""
        return [
            Facts(index=i, n_tasks=self.tasks, n_facts=self.facts, n_labels=self.labels, seed=seed)
            for i in range(self.tasks)
        ]


STRATEGIES = {
    "naive": lambda s: Strategy(),
    "joint": lambda s: Strategy(),
    "replay": lambda s: Replay(per_task=s.replay),
    "ewc": lambda s: EWC(s.ewc),
    "freeze": lambda s: Freeze(lambda name: not name.startswith("unembed"), after_first_task=True),
}


@lru_cache(maxsize=4)  # the arms of a seed share the joint training
def accuracy_matrix(settings: Settings, seed: int) -> np.ndarray:
    """Train through the series; ``A[i, j]``: accuracy on table j after training on table i.

    The strategy "joint" trains on all tables at every stage: what could be known if nothing had to
    be kept.

    Returns
    -------
    float64 [tasks, tasks]
    """
    _, training, keeping = streams(seed)
    series = settings.series(seed)
    model = untrained(series[0], settings, seed)
    keep = choose(STRATEGIES, settings.strategy, "strategy")(settings)
    tables = [task.everything() for task in series]
    matrix = []
    for table in tables:
        shown = join(tables) if settings.strategy == "joint" else table
        fit_model(model, lambda size, rng, shown=shown: shown, settings, training, callbacks=[keep])
        keep.end_task(model, table, keeping)
        matrix.append([accuracy(model, each) for each in tables])
    return np.array(matrix)


@register
class Sequential(Experiment):
    """Naive training against joint training, replay, EWC and freezing."""

    name = "forgetting.sequential"
    question = "What is left of the first task when the fourth has been learnt?"
    mechanism = (
        "All tables of facts share one network and one set of labels. Gradient descent on a new table "
        "has no reason to spare what an old one needs, so the old answers are overwritten. Training on "
        "everything at once shows that there was room for all. Rehearsing a few old facts keeps those. A "
        "penalty on the weights that mattered (EWC) buys memory with stiffness: a strong one forgets "
        "little because it learns little (intransigence). Freezing everything below the output head "
        "should do the same, unless what is overwritten is the head itself, which all tables share."
    )
    source = (
        "McCloskey & Cohen (1989); Kirkpatrick et al. (2017), EWC; Chaudhry et al. (2018), Riemannian "
        "Walk; van de Ven (2025), on computing the Fisher"
    )
    seconds = 20.0
    Settings = Settings
    quick = {"steps": 80}

    arms = {
        "naive": arm(text="one table after the other, nothing else"),
        "joint": arm(strategy="joint", control=True, text="all tables at every stage"),
        "replay": arm(
            strategy="replay", text="16 stored facts of each earlier table in every batch"
        ),
        "EWC": arm(strategy="ewc", text="exact Fisher, λ = 100"),
        "EWC, strong": arm(strategy="ewc", ewc=1000.0, text="exact Fisher, λ = 1000"),
        "freeze": arm(strategy="freeze", text="after the first table only the output head learns"),
    }

    measured = {
        "matrix": "A[i, j]: accuracy on table j after training on table i, float [tasks, tasks]",
        "average_accuracy": "mean_j A[T, j] (Lopez-Paz & Ranzato 2017)",
        "learning_accuracy": "mean_j A[j, j] (Riemer et al. 2019)",
        "forgetting": "mean_{j<T} (max_{l<T} A[l, j] − A[T, j]), −1 to 1 (Chaudhry et al. 2018)",
        "intransigence": (
            "mean_k (A*_k − A[k, k]), A* a jointly trained model of the same seed (Chaudhry et al. 2018)"
        ),
    }

    claims = [
        at_least("forgetting", 0.6, arm="naive", text="Naive training forgets most of it"),
        at_least("average_accuracy", 0.95, arm="joint", control=True, text="There is room for all"),
        at_most(
            "forgetting", 0.05, arm="joint", control=True, text="Joint training forgets nothing"
        ),
        at_least(
            "average_accuracy",
            0.2,
            arm="replay",
            minus="naive",
            text="Replaying 16 facts a table helps",
        ),
        at_least(
            "average_accuracy",
            0.05,
            arm="EWC",
            minus="naive",
            text="EWC helps, with the exact Fisher",
        ),
        at_most("forgetting", 0.3, arm="EWC, strong", text="A strong penalty forgets little …"),
        at_least("intransigence", 0.25, arm="EWC, strong", text="… because it learns little"),
        at_most("forgetting", 0.3, arm="freeze", text="Freezing forgets little …"),
        at_least("intransigence", 0.25, arm="freeze", text="… because it learns little"),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A fact in words."""
        return Settings().series(0)[0].describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Train through the series, and jointly for what could have been known."""
        matrix = accuracy_matrix(settings, seed)
        # What only a strategy uses goes back to its default, so that all arms share one reference.
        joint = replace(settings, strategy="joint", ewc=Settings.ewc, replay=Settings.replay)
        return {
            "matrix": matrix,
            "average_accuracy": metrics.average_accuracy(matrix),
            "learning_accuracy": metrics.learning_accuracy(matrix),
            "forgetting": metrics.forgetting(matrix),
            "intransigence": metrics.intransigence(matrix, accuracy_matrix(joint, seed)[-1]),
        }

    def draw(self, results: Results) -> Figure:
        """Accuracy matrices of each strategy; below, what is kept against what is learnt."""
        from minitx.plots import figure, label, matrix, suptitle

        matrices = figures.by_arm(results, "matrix")
        above, below = "abcdefghi"[: len(matrices)], "xyz"
        fig, axes = figure(size=(13, 6.6), rows=[above, below], heights=[1, 1.2])
        for letter, (name, values) in zip(above, matrices.items(), strict=True):
            numbers = [str(i + 1) for i in range(values.shape[-1])]
            matrix(axes[letter], values.mean(axis=0), rows=numbers, columns=numbers)
            label(
                axes[letter], name, x="tested on table", y="after table" if letter == "a" else None
            )
        shown = {
            "average_accuracy": "What is known at the end",
            "forgetting": "What was lost",
            "intransigence": "What was not learnt",
        }
        for letter, (measure, title) in zip(below, shown.items(), strict=True):
            figures.rows(axes[letter], results, measure, title=title,
                         x=measure.replace("_", " "), limits=(-0.1, 1.05))  # fmt: skip
        for letter in below[1:]:
            axes[letter].set_yticklabels([])
        return suptitle(fig, "Four tasks in a row: accuracy on each table after each table")
