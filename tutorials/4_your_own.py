# %% [markdown]
# # 4. Your own phenomenon: from a question to an experiment that can fail
#
# **At the end you will be able to**
#
# - turn a question about language models into a task that a tiny transformer learns in a second;
# - choose a measure, and a control in which the effect must vanish;
# - write it down as an experiment with claims, and run it over seeds from the command line;
# - read a verdict: supported, refuted, or inconclusive.
#
# Time: about 40 minutes. The example is the **reversal curse** (Berglund et al., 2023): a model that has
# learned "the author of *Emma* is Jane Austen" may be unable to say which book Jane Austen wrote.

# %%
# %matplotlib inline
import subprocess
import sys
from pathlib import Path

import numpy as np

import minitx as tx
from minitx import lab, plots
from minitx.lab.loading import experiments_in

# Knobs
n_facts = 64
steps = 300
seed = 0

# %% [markdown]
# ## 1. The question, small enough to hold
#
# A fact links a person and a place. A question is two tokens long: *who or what*, and *which way*:
#
# - forward: `[person 7, →]`, answer `place 7`;
# - backward: `[place 7, ←]`, answer `person 7`.
#
# There is nothing to compute, only to remember. **What is strange about language models here?** To us both
# directions are *one* fact. The question: does a transformer that is trained forward answer backward?
#
# **Question.** Before you run anything: what do you expect, and what accuracy would a guess have?

# %%
forward, backward = 2 * n_facts, 2 * n_facts + 1  # the two "which way" tokens


def ask(facts, way):
    """Questions [B, 2] and their answers [B]. Persons are tokens 0.., places n_facts.."""
    facts, way = np.broadcast_arrays(facts, way)
    subject = np.where(way == forward, facts, n_facts + facts)
    answer = np.where(way == forward, n_facts + facts, facts)
    return np.stack([subject, way], axis=-1), answer


def batch_of(facts, way):
    tokens, answer = ask(facts, way)
    targets = np.full(tokens.shape, tx.tasks.IGNORE)
    targets[:, -1] = answer  # only the answer counts
    return tx.tasks.Batch(tokens, targets)


def only_forward(batch_size, rng):
    return batch_of(rng.integers(n_facts, size=batch_size), forward)


def new_model():
    config = tx.TransformerConfig(
        vocab_size=2 * n_facts + 2, max_len=2, d_model=64, n_heads=2, n_layers=1
    )
    return tx.Transformer(config, rng=np.random.default_rng(seed))


def accuracy(model, facts, way):
    tokens, answer = ask(facts, way)
    return float((model(tokens).numpy()[:, -1].argmax(axis=-1) == answer).mean())


model = new_model()
tx.fit(
    model, only_forward, steps=steps, batch_size=64, lr=3e-3, rng=np.random.default_rng(seed + 1)
)
everything = np.arange(n_facts)
print("forward: ", accuracy(model, everything, forward))
print("backward:", accuracy(model, everything, backward))

# %% [markdown]
# ## 2. Is it a finding? Not yet
#
# **Question.** There is a dull explanation of these numbers. Which one?
#
# The model has never seen the token `←`, nor a place as a question. It *cannot* answer such questions, and
# it may have nothing to do with facts. A good control removes the dull explanation and leaves the
# interesting one. Here: teach **half** of the facts both ways. Now the model knows what `←` means, has
# answered backward questions, and has every reason to learn that the two directions go together. Then ask
# about the other half.

# %%
half = n_facts // 2


def half_of_them_both_ways(batch_size, rng):
    facts = rng.integers(n_facts, size=batch_size)
    turned = (rng.random(batch_size) < 0.5) & (facts < half)
    return batch_of(facts, np.where(turned, backward, forward))


model = new_model()
tx.fit(
    model,
    half_of_them_both_ways,
    steps=steps,
    batch_size=64,
    lr=3e-3,
    rng=np.random.default_rng(seed + 1),
)
taught, other = everything[:half], everything[half:]
table = np.array(
    [[accuracy(model, f, way) for way in (forward, backward)] for f in (taught, other)]
)

fig, ax = plots.figure(panel=(4.6, 3.0))
plots.matrix(
    ax, table, rows=["taught both ways", "taught forward only"], columns=["forward", "backward"]
)
plots.suptitle(fig, "Accuracy: the same model, the same questions")

# %% [markdown]
# Three cells of four are right, the last one is not. The model understands backward questions, knows every
# fact forward, and still cannot turn those round that it was not taught to. This is worth a claim.
#
# **Question.** Why is it so? Think of which weights a forward question changes: the embedding of the
# *person* (input) and the output row of the *place*. And which would a backward question need?
#
# ## 3. Write it down
#
# An experiment is one file. It says what is varied (**arms**), what is **measured**, what is **claimed**, and
# what would refute it, before any line of machinery. The thresholds are fixed *now*, before the seeds run.
#
# - Claim: facts taught one way are learned (accuracy ≥ 0.95), and cannot be turned round (≤ 0.05; a blind
#   guess is right once in 64 times).
# - Controls: the same model answers the backward questions that it was taught (≥ 0.95). And in a second
#   arm, where *all* facts are taught both ways, the same facts are known backward (≥ 0.95).
#
# The next cell writes the file. Read it from top to bottom.

# %%
# %%writefile my_experiment.py
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


# %% [markdown]
# ## 4. Run it
#
# In a terminal you would type
#
# ```
# minitx show my_experiment.py
# minitx run my_experiment.py --seeds 5
# ```
#
# Two arms, five seeds each. The table has a row for each claim: the mean over seeds, its 95 % interval, the
# threshold, and the verdict. A claim is *supported* if the whole interval is on the right side,
# *refuted* if it is wholly on the wrong side, and *inconclusive* otherwise.
#
# **Question.** Which of the four would surprise you if it failed, and what would you check first?

# %%
command = [sys.executable, "-m", "minitx", "run", "my_experiment.py", "--seeds", "5", "--fresh"]
print(subprocess.run(command, capture_output=True, text=True, encoding="utf-8").stdout)

# %% [markdown]
# The runs are stored in `runs/tutorial.reversal/`: the settings, a line for each finished run, the verdicts,
# and the figure. From Python you get the same; what is stored is not run again:

# %%
(experiment,) = experiments_in(Path("my_experiment.py"))
outcome = lab.run(experiment, seeds=5, out="runs")
experiment.draw(outcome.results)

# %% [markdown]
# ## 5. Try to break it
#
# A claim is worth as much as the attempts to refute it. Each knob of `Settings` can be turned from the
# command line:
#
# ```
# minitx run my_experiment.py --set tied=true        # input and output embeddings shared: surely now?
# minitx run my_experiment.py --set n_layers=3
# minitx run my_experiment.py --set n_facts=256 --set steps=1000
# ```
#
# **Question.** With `tied=true` the place's input embedding *is* its output row, and forward training does
# touch it. Is the curse lifted? Guess first.
#
# ## What to take with you
#
# - Make the question so small that you can say what the answer means.
# - Look for the dull explanation, and build the control that rules it out.
# - Fix thresholds before the seeds run. Report what does not hold, too.
#
# **Now yours.** Copy `my_experiment.py`, change the question, and keep the shape: question, mechanism, arms,
# measured, claims, measure, draw. Some that fit in an afternoon: Does a model taught `a < b` and `b < c` know
# `a < c`? How many facts fit into a width? Does a fact that is seen ten times as often push out others?
