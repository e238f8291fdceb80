"""When the context contradicts what was learned by heart, which of the two is answered?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx import plots
from minitx.autograd import no_grad, ops
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.phenomena.figures import by_arm, mean, rows
from minitx.phenomena.interference._recipe import Recipe
from minitx.phenomena.recipe import train
from minitx.tasks.conflict import MemoryOrContext
from minitx.training import accuracy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from minitx.lab import Results
    from minitx.tasks import Batch

DOSES = {"q=0": 0.0, "q=.5": 0.5, "q=.8": 0.8, "q=.9": 0.9, "q=1": 1.0}


@dataclass(frozen=True)
class Settings(Recipe):
    """One layer with an MLP, for a short time; how often the context is true to memory."""

    n_layers: int = 1
    mlp: str = "gelu"
    steps: int = 300
    longer: int = 1  # factor of `steps`
    batch_size: int = 128
    truth: float = 0.0
    closed_share: float = 0.8
    test_sequences: int = 2000


@register
class Conflict(Experiment):
    """Train on closed-book and open-book questions; ask with a statement that contradicts memory."""

    name = "interference.conflict"
    question = "When the context contradicts memory, which of the two is answered?"
    mechanism = (
        "Closed-book questions teach the model what each key's value is; open-book ones teach it "
        "to take the value from the context. The more often the context merely repeats what memory "
        "holds, the less there is to learn from it: memory answers most open-book questions too. "
        "So the dose is the share q of statements that are true to memory in training. The answer "
        "under conflict shifts from context to memory with q. Without closed-book questions there "
        "is no memory, and nothing shifts. It is a matter of the speed of learning: train longer "
        "and the context is used again."
    )
    source = "Longpre et al. (2021), Entity-Based Knowledge Conflicts in Question Answering"
    seconds = 45.0
    Settings = Settings
    quick = {"steps": 200, "test_sequences": 500}

    arms = {
        **{
            name: arm(truth=q, text=f"{q:.0%} of the statements are true to memory")
            for name, q in DOSES.items()
        },
        "no closed book": arm(
            truth=0.0, closed_share=0.0, control=True, text="q=0 and open book only: no memory"
        ),
        "q=.8, longer": arm(truth=0.8, longer=3, text="q=.8, three times the steps"),
    }

    measured = {
        "p_memory": "Probability of memory's value when the context states another, mean",
        "p_context": "Probability of the stated value there, mean",
        "answers_memory": "Share of such questions whose likeliest answer is memory's",
        "closed": "Accuracy on closed-book questions as in training",
        "open": "Accuracy on open-book questions whose statement is true to memory",
        "by_frequency": "p_memory for often, rarely, seldom asked keys (25:5:1 in closed book)",
    }

    claims = [
        at_least("p_memory", 0.03, arm="q=.5", minus="q=0", text="Memory gains from q=0 to .5 ..."),
        at_least("p_memory", 0.2, arm="q=.8", minus="q=.5", text="... from .5 to .8 ..."),
        at_least("p_memory", 0.1, arm="q=.9", minus="q=.8", text="... from .8 to .9 ..."),
        at_least("p_memory", 0.0, arm="q=1", minus="q=.9", text="... and from .9 to 1"),
        at_most(
            "p_memory",
            0.02,
            arm="no closed book",
            control=True,
            text="Without closed-book questions there is no memory to answer from",
        ),
        at_most(
            "p_memory",
            -0.1,
            arm="q=.8, longer",
            minus="q=.8",
            text="Trained longer, it uses the context again",
        ),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A question under conflict in words."""
        return MemoryOrContext(closed_share=0.0, conflict=True).describe(rng)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Train one model on a world of its own, then ask it under conflict."""
        world = {"world_seed": seed, "truth": settings.truth}
        task = MemoryOrContext(closed_share=settings.closed_share, **world)
        recipe = dataclasses.replace(settings, steps=settings.steps * settings.longer)
        model, rng = train(task, recipe, seed)

        def questions(**changes: Any) -> Batch:
            return MemoryOrContext(**world | changes).sample(settings.test_sequences, rng)

        batch = questions(closed_share=0.0, conflict=True)
        with no_grad():
            p = ops.softmax(model(batch.tokens)[:, -1]).data  # [B, V]
        each = np.arange(batch.size)
        memory, part = batch.info["memory"], batch.info["part"]
        p_memory = p[each, memory]
        return {
            "p_memory": p_memory.mean(),
            "p_context": p[each, batch.info["stated"]].mean(),
            "answers_memory": (p.argmax(axis=-1) == memory).mean(),
            "closed": accuracy(model, questions(closed_share=1.0)),
            "open": accuracy(model, questions(closed_share=0.0, truth=1.0)),
            "by_frequency": [p_memory[part == k].mean() for k in range(3)],
        }

    def draw(self, results: Results) -> Figure:
        """Memory against context by dose; beside it, the arms with their control."""
        fig, (left, right) = plots.figure(ncols=2, size=(11.0, 4.6), width_ratios=[1.0, 1.15])
        _doses(left, results)
        rows(
            right,
            results,
            "p_memory",
            looks={"q=.8, longer": "comparison"},
            title="No memory without closed book;\nless if longer",
            x="probability of memory's value",
            limits=(-0.03, 1.03),
        )
        low, high = mean(results, "q=0", "p_memory"), mean(results, "q=1", "p_memory")
        return plots.suptitle(
            fig,
            f"Probability of memory's value in a conflict: {low:.2f} if contexts contradicted it,\n"
            f"{high:.2f} if they repeated it",
        )


def _doses(ax: Axes, results: Results) -> None:
    there = [name for name in DOSES if results[name]]
    if not there:
        return
    x = [DOSES[name] for name in there]
    for measure, label, role in (
        ("p_memory", "memory's value", "treatment"),
        ("p_context", "the stated value", "comparison"),
    ):
        ys = np.stack(list(by_arm(results, measure, there).values()), axis=1)  # [seeds, doses]
        plots.seed_lines(ax, x, ys, label, role)
    ax.set_ylim(-0.03, 1.05)
    plots.label(
        ax,
        "The answer shifts from context to memory",
        x="share of training statements true to memory, q",
        y="probability under conflict",
    )
    plots.legend(ax, loc="best")
