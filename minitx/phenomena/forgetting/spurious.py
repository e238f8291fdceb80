"""The loss that is not a loss: a few steps of another task and no answer is left, yet all is known."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from minitx.continual import Freeze, Strategy
from minitx.errors import choose
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.nn import Transformer
from minitx.phenomena import figures
from minitx.phenomena.recipe import Recipe, fit_model, train
from minitx.tasks.biographies import Biographies
from minitx.training import Curve, accuracy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from minitx.lab import Results

PEOPLE, HALF, KNOWN = 96, 48, 72  # read about; re-taught after the damage; asked about in training
LATER = 120  # people 96..119 are new: nothing was ever read about them
EVERY = 5  # steps between two points of a curve


@dataclass(frozen=True)
class Settings(Recipe):
    """Learn a world, damage it by a second task, then re-teach half of it."""

    second: str = "refuse"
    freeze: bool = False  # embeddings and the first block, during the second task
    d_model: int = 48
    n_heads: int = 4
    n_layers: int = 2
    positions: str = "learned"
    mlp: str = "gelu"
    bias: bool = True
    steps: int = 500
    batch_size: int = 64
    lr: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.999)
    schedule: str = "linear_decay"  # of the first training; constant afterwards
    floor: float = 0.05
    damage_steps: int = 200  # long enough for the second task to be learnt in every arm
    recovery_steps: int = 40

    def world(self, seed: int) -> Biographies:
        """Biographies of 96 people, questions about 72 of them."""
        return Biographies(people=(0, KNOWN), read=(0, PEOPLE), n_people=LATER, seed=seed)


# Who is asked, and what counts as the right answer, in the second task.
SECOND = {
    "refuse": lambda world: Biographies(
        people=(PEOPLE, LATER), answers="refuse", questions=1.0, n_people=LATER, seed=world.seed
    ),
    "overwrite": lambda world: Biographies(
        people=(0, PEOPLE), answers="wrong", questions=1.0, n_people=LATER, seed=world.seed
    ),
}


@lru_cache(maxsize=2)
def learnt(settings: Settings, seed: int) -> tuple[Transformer, np.random.Generator]:
    """The model that knows its world, and a stream for what follows: copy both before use."""
    return train(settings.world(seed), settings, seed)


@register
class Spurious(Experiment):
    """Recovery by a few steps on half of the old people, measured on the other half."""

    name = "forgetting.spurious"
    question = "Is what a model no longer answers lost?"
    mechanism = (
        "A model has read about 96 people and answers questions about them. Then it is taught to refuse "
        "questions about new people. Within a few steps it refuses everyone: by its answers, all is "
        "forgotten. But a few steps on half of the old people bring back the other half, about whom "
        "nothing was said: their facts were still there, only the way from question to answer had been "
        "bent. If instead the old people's facts are overwritten, re-teaching half does not bring back "
        "the rest."
    )
    source = "Zheng et al. (2025), Spurious Forgetting in Continual Learning of Language Models"
    seconds = 25.0
    Settings = Settings
    quick = {"steps": 350}

    arms = {
        "refuse": arm(text="second task: refuse questions about new people"),
        "overwrite": arm(
            second="overwrite", control=True, text="second task: wrong values for the old people"
        ),
        "refuse, frozen": arm(
            freeze=True, text="as refuse, with embeddings and the first block frozen"
        ),
    }

    measured = {
        "held_out": "accuracy on the 24 people that were read about but never asked about, before",
        "initial": "accuracy on the unseen half of the 96 people, before the second task",
        "damage": "the same after 0, 5, 10, ... steps of the second task, float [points]",
        "at_10": "the same after 10 steps of the second task",
        "at_50": "the same after 50 steps of the second task",
        "low": "the same after all 200 steps of the second task, where re-teaching starts",
        "second": "accuracy on the second task itself, by its own right answers, at that point",
        "recovery": "the same after 0, 5, 10, ... steps on the other half, float [points]",
        "recovered": "the same after 40 steps on the other half",
        "spurious_fraction": "(recovered − low) / (initial − low): the share of the loss that was none",
    }

    claims = [
        at_least(
            "held_out", 0.7, arm="refuse", text="Beforehand facts can be asked for that never were"
        ),
        at_most(
            "at_10", 0.1, arm="refuse", text="Ten steps of refusing, and hardly an answer is left"
        ),
        at_least("second", 0.9, arm="refuse", text="The second task is learnt: it refuses"),
        at_least(
            "second", 0.5, arm="overwrite", control=True, text="So is the control's: wrong values"
        ),
        at_least("spurious_fraction", 0.6, arm="refuse", text="Most of the loss was none"),
        at_most(
            "spurious_fraction",
            0.5,
            arm="overwrite",
            control=True,
            text="Overwritten facts do not come back with the others",
        ),
        at_least(
            "spurious_fraction",
            0.25,
            arm="refuse",
            minus="overwrite",
            text="Refusing hides, overwriting erases",
        ),
        at_least(
            "at_10",
            0.2,
            arm="refuse, frozen",
            minus="refuse",
            text="Freezing the bottom layers delays it (10 steps) …",
        ),
        at_most("at_50", 0.1, arm="refuse, frozen", text="… but does not prevent it (50 steps)"),
    ]

    def example(self, rng: np.random.Generator) -> str:
        """A person in words, and the two second tasks."""
        world = Settings().world(0)
        lines = [world.describe(rng)] + [make(world).describe(rng) for make in SECOND.values()]
        return "\n".join(lines)

    def measure(self, settings: Settings, seed: int) -> dict[str, Any]:
        """Learn the world; then the second task; then half of the old people again."""
        # The arms part only after the first training: all arms of a seed share it.
        first = replace(settings, second=Settings.second, freeze=Settings.freeze)
        model, rng = deepcopy(learnt(first, seed))
        world, then = settings.world(seed), replace(settings, schedule="constant")
        unseen = world.about(HALF, PEOPLE).everything()
        initial = accuracy(model, unseen)
        held_out = accuracy(model, world.about(KNOWN, PEOPLE).everything())

        def teach(task: Biographies, steps: int, *extra: Strategy) -> np.ndarray:
            """Accuracy on the unseen half before, every five steps and after: float [points]."""
            curve = Curve({"unseen": lambda state: accuracy(model, unseen)}, every=EVERY)
            fit_model(model, task, then, rng, steps=steps, callbacks=[curve, *extra])
            return curve["unseen"]

        second = choose(SECOND, settings.second, "second task")(world)
        bottom = ("embed", "pos_embed", "blocks.0.")
        frozen = [Freeze(lambda name: name.startswith(bottom))] if settings.freeze else []
        damage = teach(second, settings.damage_steps, *frozen)
        learnt_second = accuracy(model, second.everything())
        half = replace(world.about(0, HALF), questions=1.0)
        recovery = teach(half, settings.recovery_steps)
        low, recovered = recovery[0], recovery[-1]
        lost = initial - low
        return {
            "held_out": held_out,
            "initial": initial,
            "damage": damage,
            "at_10": damage[10 // EVERY] if len(damage) > 10 // EVERY else np.nan,
            "at_50": damage[50 // EVERY] if len(damage) > 50 // EVERY else np.nan,
            "low": low,
            "second": learnt_second,
            "recovery": recovery,
            "recovered": recovered,
            "spurious_fraction": (recovered - low) / lost if lost > 0 else np.nan,
        }

    def draw(self, results: Results) -> Figure:
        """Accuracy on people never re-taught: damage to the left, recovery to the right."""
        from minitx.plots import figure, label, legend, suptitle

        fig, (damage, recovery, share) = figure(ncols=3, size=(14, 4.6))
        looks = {"refuse": "treatment", "overwrite": "control", "refuse, frozen": "comparison"}
        for ax, measure in ((damage, "damage"), (recovery, "recovery")):
            for name, ys in figures.by_arm(results, measure).items():
                steps = EVERY * np.arange(ys.shape[-1])
                figures.curves(ax, results, measure, steps, [name], looks=looks, thin=True)
            ax.set_ylim(0, 1.03)
        label(damage, "A second task: answers vanish", x="steps of the second task",
              y="accuracy on 48 people never re-taught")  # fmt: skip
        label(recovery, "Re-teach the other 48: they are back", x="steps on the other half")
        figures.rows(share, results, "spurious_fraction", title="How much of the loss was none",
                     x="(recovered − low) / (initial − low)", limits=(0, 1.03), looks=looks)  # fmt: skip
        legend(damage, loc="upper right")
        return suptitle(fig, "What is no longer answered need not be lost")
