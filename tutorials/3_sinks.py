# %% [markdown]
# # 3. Attention sinks: why does a head look where nothing is?
#
# Large language models put much of their attention on the first token of whatever they read, though it
# says nothing. Take this token out of their cache, and they break down.
#
# **At the end you will understand**
#
# - why softmax makes such a *sink* useful, and how it comes about during training;
# - why looking at the sink does no harm;
# - how to tell "is looked at" from "matters", by intervening;
# - which changes of the model make the sink go away, and which only seem as if they should;
# - what turns an observation into a claim that can fail.
#
# Time: about 40 minutes, after tutorial 2.

# %%
# %matplotlib inline
import numpy as np

import minitx as tx
from minitx import plots
from minitx.interp.scores import first_token_share, value_drain
from minitx.optim import linear_decay
from minitx.phenomena.sinks.emergence import Emergence
from minitx.tasks.bigram import BigramBackcopy

# Knobs
seed = 0
steps = 600  # training steps of each model
arms = ["softmax", "softmax1", "head_gate", "no_triggers"]  # the variants of section 4

# %% [markdown]
# ## 1. Watch it come about
#
# The model and the task are those of tutorial 2: one head, and work for it only after a trigger token.
# This time we measure while it trains, every 20 steps, on sequences that training never sees:
#
# - how often the copies after triggers are right;
# - the **idle share**: the attention that all *other* queries put on the first token.
#
# **Question.** Which rises first? Why should the idle share rise at all: does the loss reward it?

# %%
task = BigramBackcopy(table_seed=seed)
config = tx.TransformerConfig(
    vocab_size=task.vocab_size,
    max_len=task.max_len,
    n_heads=1,
    n_layers=1,
    positions="rotary",
    mlp="none",
    bias=False,
    norm_bias=True,
)
model = tx.Transformer(config, rng=np.random.default_rng(seed))
batch = task.sample(64, np.random.default_rng(seed + 1))
triggers = batch.info["trigger"]


def idle_share(state):
    _, cache = state.model.run_with_cache(batch.tokens)
    return first_token_share(cache["pattern", 0], rows=~triggers)[0]


def copies(state):
    return (state.model(batch.tokens).numpy().argmax(-1) == batch.targets)[triggers].mean()


def drain(state):
    _, cache = state.model.run_with_cache(batch.tokens)
    return value_drain(cache["v", 0])[0]


curve = tx.Curve({"idle": idle_share, "copies": copies, "drain": drain}, every=20)
history = tx.fit(
    model,
    task,
    steps=steps,
    lr=1e-2,
    betas=(0.9, 0.99),
    schedule=linear_decay(start=0.7, end=0.05),
    rng=np.random.default_rng(seed + 2),
    callbacks=[curve],
)

# %%
fig, ax = plots.figure(panel=(6.6, 3.6))
for n, (name, label) in enumerate(
    [
        ("copies", "copies that are right"),
        ("idle", "idle share on the first token"),
        ("drain", "size of the first token's value"),
    ]
):
    look = plots.look(n)
    ax.plot(
        curve.steps,
        curve[name],
        color=look.color,
        linestyle=look.linestyle,
        linewidth=2,
        label=label,
    )
ax.set_ylim(0, 1.2)
plots.label(
    ax, "First the work, then the sink", x="step", y="share, or size relative to others", wrap=60
)
plots.legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0))
plots.suptitle(fig, "A sink comes about")

# %% [markdown]
# The head learns its work. But once it can fetch tokens, it fetches *everywhere*, and after ordinary
# tokens what it fetches is noise. Its weights must sum to one, so it cannot simply stop. What it can do is
# to put them on a key that every query can see, and make the value there **small**: the third curve falls
# as the second rises. Looking at the sink is how a softmax head says nothing.
#
# ## 2. A value of almost nothing
#
# The output of the head is `Σ weight × value`.
#
# **Question.** Most of the weight lies on the first token. How large is its value, compared to others?

# %%
_, cache = model.run_with_cache(batch.tokens)
norms = np.linalg.norm(cache["v", 0][:, :, 0], axis=-1)  # [batch, position]

fig, (left, right) = plots.figure(ncols=2)
shown = 16
where = triggers[:, :shown].sum(axis=1).argmax()
names = [task.name_of(token) for token in batch.tokens[where, :shown]]
plots.pattern(left, cache["pattern", 0][where, 0, :shown, :shown], tokens=names)
plots.label(left, "Where the head looks")
right.bar(range(shown), norms[where, :shown], color=plots.TREATMENT.color)
right.bar([0], norms[where, :1], color=plots.OKABE_ITO["vermilion"])
plots.label(right, "How much there is to fetch", x="key position", y="size of the value")
plots.suptitle(fig, "The head looks where there is least")

# %% [markdown]
# ## 3. Is looked at, or matters?
#
# A pattern shows where a head looks, not what follows from it. To know, intervene. Two experiments, with
# hooks that replace the pattern while the model runs:
#
# - **silence** the first token: set its weight to 0, leave the others as they are;
# - **evict** it: set its weight to 0 and scale the others up until they sum to one again. (This is what
#   happens when a streaming model drops the first token from its cache.)
#
# **Question.** After which of the two does the head *say* more? And which of them makes predictions worse?


# %%
def silence(pattern, hook):
    keep = np.ones(pattern.shape[-1], dtype=np.float32)
    keep[0] = 0
    return pattern * keep


def evict(pattern, hook):
    others = silence(pattern, hook)
    return others / (others.sum(axis=-1, keepdims=True) + 1e-9)


def look_at(change):
    """How much the head adds at idle tokens (relative to its work), and the loss there in nats."""
    hooks = [] if change is None else [("blocks.0.attn.hook_pattern", change)]
    with model.hooks(fwd_hooks=hooks):
        logits, cache = model.run_with_cache(batch.tokens)
    idle = batch.info["normal"]
    said = np.linalg.norm(cache["attn_out", 0], axis=-1)  # [batch, position]
    losses = tx.ops.cross_entropy(logits, batch.targets, reduction="none").numpy()
    return said[idle].mean() / said[triggers].mean(), losses[idle].mean()


seen = {"as trained": look_at(None), "silenced": look_at(silence), "evicted": look_at(evict)}

fig, axes = plots.figure(ncols=2)
for which, (ax, title, unit) in enumerate(
    (
        (axes[0], "What the head says when idle", "relative to when it works"),
        (axes[1], "The loss when idle", "nats"),
    )
):
    heights = [numbers[which] for numbers in seen.values()]
    ax.bar(list(seen), heights, color=[plots.look(n).color for n in range(3)], width=0.6)
    for place, value in enumerate(heights):
        ax.annotate(f"{value:.3f}", (place, value), ha="center", va="bottom")
    plots.label(ax, title, y=unit)
plots.suptitle(fig, "The sink keeps the head quiet")

# %% [markdown]
# Silenced, hardly anything changes: there was next to nothing to fetch. Evicted, the head speaks up: the
# weight that was parked falls onto tokens that do have values. So the sink carries no information. It is a
# **place to put weight**.
#
# Look at the loss before you believe too much. It hardly moves: here the next token is so easy to predict,
# and the parked weight is spread over so many others, that the noise drowns. Where tokens are harder to
# predict and only the last few are remembered, eviction costs a good deal: this is what breaks large models
# in a stream. `minitx run sinks.streaming` measures it, with a control.
#
# ## 4. What makes it go away?
#
# If this story is right, then the sink must vanish when a head can say nothing in another way, or when
# it never has work:
#
# | variant | what is different |
# |---|---|
# | `softmax1` | weights are `exp / (1 + Σ exp)`: they may sum to less than one |
# | `head_gate` | softmax, but a learned gate can close the head |
# | `no_triggers` | softmax, but there are no copies to make |
#
# **Question.** Write down your guess of the idle share for each of the three, from 0 to 1.
#
# The experiment `sinks.emergence` comes with minitx; here are four of its arms, one seed each.

# %%
experiment = Emergence()
settings = experiment.settings({"steps": steps})
runs = {name: experiment.measure(settings[name], seed) for name in arms}

fig, axes = plots.figure(ncols=len(arms), panel=(3.3, 3.5))
for ax, name in zip(axes, arms, strict=True):
    plots.pattern(ax, runs[name]["example"])
    plots.label(ax, f"{name}: {runs[name]['idle_share']:.2f}")
    ax.set_ylabel("")
plots.suptitle(fig, "The same task and seed; the number is the idle share on the first token")

# %%
for name, run in runs.items():
    print(
        f"{name:12} idle share {run['idle_share']:.3f}   value of first token {run['drain']:.2f}   "
        f"copies right {run['copy_accuracy']:.2f}   loss above the floor {run['excess_loss']:.3f}"
    )

# %% [markdown]
# The variants do the same work, equally well (`no_triggers` has none to do): they differ in where the idle
# weight goes. (A pattern alone can mislead: while its gate is closed, `head_gate` may look anywhere.)
#
# Would you have guessed that weight decay, or plain SGD, also makes it go away? People did. It does not:
# both are arms of the experiment, so that you can see for yourself.
#
# ## 5. From a picture to a claim
#
# One seed is an anecdote. An experiment in minitx says beforehand *what would refute it*: a measure, a
# threshold, and controls in which the effect must vanish.

# %%
for claim in experiment.claims[:9]:
    sign = "≥" if claim.direction == "at_least" else "≤"
    kind = "control" if claim.control else "claim  "
    print(f"{kind}  {claim.measure} {sign} {claim.threshold:<5} in {claim.arm:13} {claim.text}")

# %% [markdown]
# Each arm is trained with ten seeds; a claim is *supported* only if its whole 95 % interval lies on
# the right side of the threshold. The whole experiment takes about five minutes:
#
# ```
# minitx show sinks.emergence
# minitx run sinks.emergence
# minitx run sinks.emergence --set length=128     # does it still hold? (it need not)
# ```
#
# > **Exercises.** Measure sinks as the literature does: `minitx exercises start sink_metric`.
# > Find another kind of head by its pattern: `minitx exercises start induction_score`.
#
# ## What to take with you
#
# - Softmax forces a head to look somewhere. A sink is where it looks when it has nothing to say.
# - The sink's value is drained: silence it and nothing changes; evict it and the head makes noise.
# - A picture suggests, an intervention decides, and a control tells you why. What an effect costs is yet
#   another question.
#
# **Try next.** Put `"no_bos"` and `"weight_decay"` into `arms`. Change `silence` so that it hits the
# *second* token. Take `steps = 150`: is the sink there before the copies are perfect?
#
# Next: [4. Your own phenomenon](4_your_own.ipynb)
