"""Four tasks in a row: what is left of the first when the last is learnt, and what helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.autograd import no_grad
from minitx.continual import EWC, Freeze, Replay, Strategy, metrics
from minitx.errors import choose
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.nn import Transformer, TransformerConfig
from minitx.tasks.base import IGNORE, Batch, join
from minitx.tasks.facts import Facts
from minitx.training import fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results


@dataclass(frozen=True)
class Settings:
    """Four tables of facts, one after another, and how to keep the earlier ones."""

    strategy: str = "naive"
    ewc: float = 100.0  # strength of EWC's penalty
    replay: int = 16  # stored facts of each earlier table
    tasks: int = 4
    facts: int = 32
    labels: int = 16
    d_model: int = 32
    n_heads: int = 2
    n_layers: int = 1
    steps: int = 150  # full-batch steps a task
    lr: float = 2e-3

    def series(self, seed: int) -> list[Facts]:
        """The tables; no two share a question, all share the labels and the output head."""
        return [
            Facts(index=i, n_tasks=self.tasks, n_facts=self.facts, n_labels=self.labels, seed=seed)
            for i in range(self.tasks)
        ]

    def model(self, task: Facts, rng: np.random.Generator) -> Transformer:
        """Pre-LayerNorm, learned positions, GELU MLP."""
        return Transformer(
            TransformerConfig(
                vocab_size=task.vocab_size,
                out_size=task.out_size,
                max_len=task.max_len,
                d_model=self.d_model,
                n_heads=self.n_heads,
                n_layers=self.n_layers,
            ),
            rng=rng,
        )


STRATEGIES = {
    "naive": lambda s: Strategy(),
    "joint": lambda s: Strategy(),
    "replay": lambda s: Replay(per_task=s.replay),
    "ewc": lambda s: EWC(s.ewc),
    "freeze": lambda s: Freeze(lambda name: not name.startswith("unembed"), after_first_task=True),
}


def accuracy(model: Transformer, batch: Batch) -> float:
    """Share of targets that the model's first choice hits, 0 to 1."""
    with no_grad():
        logits = model(batch.tokens, **batch.model_kwargs()).numpy()
    asked = batch.targets != IGNORE
    return float((logits.argmax(-1) == batch.targets)[asked].mean())


def accuracy_matrix(settings: Settings, seed: int, strategy: str) -> np.ndarray:
    """Train through the series; ``A[i, j]``: accuracy on table j after training on table i.

    "joint" trains on all tables at every stage: what could be known if nothing had to be kept.

    Returns
    -------
    float64 [tasks, tasks]
    """
    init_rng, train_rng, keep_rng = np.random.default_rng(seed).spawn(3)
    series = settings.series(seed)
    model = settings.model(series[0], init_rng)
    keep = choose(STRATEGIES, strategy, "strategy")(settings)
    everything = [task.everything() for task in series]
    rows = []
    for batch in everything:
        shown = join(everything) if strategy == "joint" else batch
        fit(
            model,
            lambda batch_size, rng, shown=shown: shown,
            steps=settings.steps,
            lr=settings.lr,
            rng=train_rng,
            optimizer="adam",
            callbacks=[keep],
        )
        keep.end_task(model, batch, keep_rng)
        rows.append([accuracy(model, each) for each in everything])
    return np.array(rows)


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
    seconds = 40.0
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
        """Train through the series, and once jointly for what could have been known."""
        matrix = accuracy_matrix(settings, seed, settings.strategy)
        joint = matrix if settings.strategy == "joint" else accuracy_matrix(settings, seed, "joint")
        return {
            "matrix": matrix,
            "average_accuracy": metrics.average_accuracy(matrix),
            "learning_accuracy": metrics.learning_accuracy(matrix),
            "forgetting": metrics.forgetting(matrix),
            "intransigence": metrics.intransigence(matrix, joint[-1]),
        }

    def draw(self, results: Results) -> Figure:
        """Accuracy matrices of each strategy; below, what is kept against what is learnt."""
        from minitx.phenomena._common import roles
        from minitx.plots import figure, label, seed_dots, suptitle, threshold_line
        from minitx.plots.style import FONT

        arms = [name for name in results.arms if len(results[name])]
        fig, axes = figure(ncols=len(arms), nrows=2, size=(13, 6.4), height_ratios=[1, 1.25])
        for ax, name in zip(axes[0], arms, strict=True):
            matrix = results.values(name, "matrix").mean(axis=0)
            ax.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
            for i, j in np.ndindex(matrix.shape):
                shade = "black" if matrix[i, j] > 0.6 else "white"
                ax.text(j, i, f"{matrix[i, j]:.2f}".lstrip("0"), ha="center", va="center",
                        color=shade, fontsize=FONT["tick"])  # fmt: skip
            numbers = range(1, len(matrix) + 1)
            ax.set_xticks(range(len(matrix)), numbers)
            ax.set_yticks(range(len(matrix)), numbers)
            label(ax, name, x="tested on table")
        label(axes[0, 0], y="after table")
        grid = axes[1, 0].get_gridspec()
        for ax in axes[1]:
            ax.remove()
        thirds = [
            fig.add_subplot(grid[1, 2 * i : 2 * i + 2] if len(arms) == 6 else grid[1, i])
            for i in range(min(3, len(arms)))
        ]
        shown = {
            "average_accuracy": "What is known at the end",
            "forgetting": "What was lost",
            "intransigence": "What was not learnt",
        }
        for at, (ax, (measure, title)) in enumerate(zip(thirds, shown.items(), strict=False)):
            values = {name: results.values(name, measure) for name in arms}
            seed_dots(ax, values, roles=roles(results))
            for each in results.claims:
                if each.claim.measure == measure and each.claim.minus is None:
                    row = arms.index(each.claim.arm)
                    threshold_line(ax, each.claim.threshold, each.claim.direction, axis="x",
                                   span=(row - 0.42, row + 0.42))  # fmt: skip
            label(ax, title, x=measure.replace("_", " "))
            ax.set_xlim(-0.1, 1.05)
            ax.spines[["top", "right"]].set_visible(False)
            if at:
                ax.set_yticklabels([])
        return suptitle(fig, "Four tasks in a row: accuracy on each table after each table")
