"""The reversal curse: who was taught that A is B cannot say who is B."""

from dataclasses import dataclass

import numpy as np

import minitx as tx
from minitx import plots
from minitx.lab import Experiment, arm, at_least, at_most, register
from minitx.tasks import IGNORE, Batch, Task


@dataclass(frozen=True)
class Facts(Task):
    """Persons and places, asked forward (person to place) and, for some of them, backward."""

    n_facts: int = 64
    both_ways: float = 0.5  # share of the facts that are taught in both directions

    @property
    def vocab_size(self):
        return 2 * self.n_facts + 2  # persons, places, "forward", "backward"

    @property
    def max_len(self):
        return 2

    def ask(self, facts, backward):
        """A question is [who or what, which way]; only the answer carries loss."""
        backward = np.broadcast_to(backward, facts.shape).astype(int)
        subject = facts + self.n_facts * backward
        answer = facts + self.n_facts * (1 - backward)
        tokens = np.stack([subject, 2 * self.n_facts + backward], axis=-1)
        targets = np.stack([np.full_like(answer, IGNORE), answer], axis=-1)
        return Batch(tokens, targets)

    def sample(self, batch_size, rng):
        facts = rng.integers(self.n_facts, size=batch_size)
        taught_backward = facts < self.both_ways * self.n_facts
        return self.ask(facts, taught_backward & (rng.random(batch_size) < 0.5))

    def describe(self, rng):
        fact = rng.integers(self.n_facts)
        return (
            f"person {fact} lives in: **place {fact}**\nplace {fact} is home to: **person {fact}**"
        )


@dataclass(frozen=True)
class Settings:
    n_facts: int = 64
    both_ways: float = 0.5
    d_model: int = 64
    n_layers: int = 1
    tied: bool = False  # the same embeddings for input and output: does that help?
    steps: int = 300


@register
class ReversalCurse(Experiment):
    """Facts are taught in one direction or in both; then all are asked in both."""

    name = "tutorial.reversal"
    question = "Does a model that learned 'A is B' know that 'B is A'?"
    mechanism = (
        "A forward fact is stored as a link from the person's input embedding to the place's row of "
        "the output. A backward question starts at the place's input embedding, which no forward "
        "question ever touches, so there is nothing to find."
    )
    source = "Berglund et al. (2023), The Reversal Curse"
    seconds = 20.0
    Settings = Settings
    quick = {"steps": 150}

    arms = {
        "one_way": arm(both_ways=0.5, text="half of the facts are taught forward only"),
        "both_ways": arm(both_ways=1.0, control=True, text="all are taught in both directions"),
    }

    measured = {
        "forward": "accuracy on forward questions about the second half of the facts, 0 to 1",
        "backward": "accuracy on backward questions about the same half",
        "backward_taught": "accuracy on backward questions about the first half, taught both ways",
    }

    claims = [
        at_least("forward", 0.95, arm="one_way", text="Facts taught forward are learned"),
        at_most("backward", 0.05, arm="one_way", text="They cannot be turned round"),
        at_least(
            "backward_taught",
            0.95,
            arm="one_way",
            control=True,
            text="The same model answers the backward questions that it was taught",
        ),
        at_least(
            "backward",
            0.95,
            arm="both_ways",
            control=True,
            text="Taught both ways, the same facts are known both ways",
        ),
    ]

    def measure(self, settings, seed):
        """Train one model, ask it everything."""
        init_rng, train_rng = np.random.default_rng(seed).spawn(2)
        task = Facts(settings.n_facts, settings.both_ways)
        config = tx.TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            d_model=settings.d_model,
            n_heads=2,
            n_layers=settings.n_layers,
            tied=settings.tied,
        )
        model = tx.Transformer(config, rng=init_rng)
        tx.fit(model, task, steps=settings.steps, batch_size=64, lr=3e-3, rng=train_rng)

        def accuracy(facts, backward):
            batch = task.ask(facts, backward)
            answers = model(batch.tokens).numpy()[:, -1].argmax(axis=-1)
            return (answers == batch.targets[:, -1]).mean()

        first, second = np.split(np.arange(settings.n_facts), 2)
        return {
            "forward": accuracy(second, backward=False),
            "backward": accuracy(second, backward=True),
            "backward_taught": accuracy(first, backward=True),
        }

    def example(self, rng):
        return Facts().describe(rng)

    def draw(self, results):
        """One row an arm, one dot a seed, with the claims' thresholds."""
        fig, axes = plots.figure(ncols=2, sharex=True)
        roles = {"one_way": "treatment", "both_ways": "control"}
        for ax, measure, title in (
            (axes[0], "forward", "Forward, as taught"),
            (axes[1], "backward", "The same facts, turned round"),
        ):
            claims = {c.claim.arm: c.claim for c in results.claims if c.claim.measure == measure}
            plots.seed_dots(
                ax,
                {name: results.values(name, measure) for name in results.arms if results[name]},
                roles=roles,
                threshold={name: claim.threshold for name, claim in claims.items()},
                direction={name: claim.direction for name, claim in claims.items()},
            )
            ax.set_xlim(-0.05, 1.05)
            plots.label(ax, title, x="accuracy")
        return plots.suptitle(fig, "Facts are stored in the direction in which they were taught")
