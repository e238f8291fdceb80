# %% [markdown]
# # 2. Attention by hand, then a whole transformer
#
# **At the end you will understand**
#
# - what one query does: compare, softmax, average, and why the scores are divided by √K;
# - what the causal mask does, and when it must be applied;
# - where positions come in, and what attention knows without them;
# - what the loss of an untrained model is, before you run it;
# - how to train a small transformer and look at what its head has learned.
#
# Time: about 40 minutes. Tutorial 1 first, if gradients are new to you.

# %%
# %matplotlib inline
import numpy as np

import minitx as tx
from minitx import ops, plots
from minitx.optim import linear_decay
from minitx.tasks.bigram import BigramBackcopy

# Knobs
length = 6  # tokens of the toy sequence in sections 1 to 4
width = 8  # size K of queries and keys there
steps = 600  # training steps of section 5
seed = 0
rng = np.random.default_rng(seed)

# %% [markdown]
# ## 1. One query
#
# Every position of a sequence holds three vectors: a **query** (what am I looking for?), a **key** (what
# am I?) and a **value** (what do I pass on?). Here they are random; a model computes them from its
# tokens.
#
# Take the last position. Its query is compared with every key by a dot product, the scores become
# weights by a softmax, and the output is the weighted mean of the values.
#
# **Question.** If all scores are equal, what is the output? And if one score is far larger than the rest?

# %%
query, key, value = (rng.normal(size=(length, width)) for _ in range(3))

t = length - 1
scores = key @ query[t] / np.sqrt(width)
weights = np.exp(scores - scores.max())
weights /= weights.sum()
output = weights @ value

fig, (left, right) = plots.figure(ncols=2)
for ax, numbers, title in (
    (left, scores, "Scores: any number"),
    (right, weights, "Weights: positive, sum one"),
):
    ax.bar(range(length), numbers, color=plots.TREATMENT.color)
    ax.axhline(0, color="black", linewidth=0.8)
    plots.label(ax, title, x="key position")
plots.suptitle(fig, f"Query {t} looks at {length} keys")

# %% [markdown]
# Softmax is a soft "which is largest?". Equal scores give the plain mean of all values; one very large
# score copies one value. Everything between is a mixture, and **the weights always sum to one**: a query
# cannot look at nothing. Keep this in mind for tutorial 3.
#
# ## 2. Why divide by √K?
#
# A dot product of two random vectors of size K has a spread of √K.
#
# **Question.** What becomes of the softmax when K grows and nobody divides?

# %%
sizes = [2, 8, 32, 128, 512]
fig, ax = plots.figure(panel=(6.0, 3.4))
for n, (scaled, name) in enumerate([(True, "divided by √K"), (False, "not divided")]):
    largest = []
    for k in sizes:
        q, keys = rng.normal(size=(200, k)), rng.normal(size=(200, 16, k))
        s = np.einsum("nk,nsk->ns", q, keys) / (np.sqrt(k) if scaled else 1)
        largest.append(ops.softmax(s).numpy().max(axis=-1).mean())
    look = plots.look(n)
    ax.semilogx(
        sizes, largest, color=look.color, marker=look.marker, linestyle=look.linestyle, label=name
    )
ax.axhline(1 / 16, color="0.5", linestyle=":", label="16 equal weights")
ax.set_ylim(0, 1)
plots.label(ax, "Large scores: one key takes all", x="size K of the vectors", y="largest weight")
plots.legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0))
plots.suptitle(fig, "An untrained head should not have made up its mind")

# %% [markdown]
# With one key taking all, the softmax is flat in every other direction: its gradient, `y * (g - Σ g y)`,
# vanishes when `y` is all 0 and 1, and the head cannot learn. Dividing keeps the start soft at any size.
#
# ## 3. All queries, and the mask
#
# A language model predicts the *next* token, so position t must not see what comes after it. The mask
# sets these scores to minus infinity **before** the softmax.
#
# **Question.** What would go wrong if we multiplied the weights by 0 after the softmax instead?


# %%
def attention_by_hand(query, key, value):
    output, pattern = np.zeros_like(value), np.zeros((len(query), len(key)))
    for t in range(len(query)):
        past = slice(0, t + 1)  # itself included
        scores = key[past] @ query[t] / np.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max())
        pattern[t, past] = weights / weights.sum()
        output[t] = pattern[t] @ value
    return output, pattern


by_hand, pattern = attention_by_hand(query, key, value)
q, k, v = (x[None, :, None, :] for x in (query, key, value))  # [batch, position, head, width]
by_minitx = ops.attention(q, k, v, causal=True).numpy()[0, :, 0, :]
print("largest difference to minitx:", f"{np.abs(by_hand - by_minitx).max():.0e}")

# %%
scores = query @ key.T / np.sqrt(width)
all_weights = ops.softmax(scores).numpy()
masked_late = all_weights * np.tri(length)

fig, axes = plots.figure(ncols=3, panel=(3.8, 3.8))
for ax, weights, title in zip(
    axes,
    (all_weights, pattern, masked_late),
    ("No mask", "Masked before the softmax", "Masked after the softmax"),
    strict=True,
):
    plots.pattern(ax, weights, causal=False)
    plots.label(ax, title)
print("row sums, masked before:", pattern.sum(axis=-1).round(2))
print("row sums, masked after: ", masked_late.sum(axis=-1).round(2))
plots.suptitle(fig, "Queries down, keys across")

# %% [markdown]
# Masked too late, the early rows have lost most of their weight to a future that they may not see; their
# outputs shrink, by an amount that depends on the future. The first row must be exactly [1, 0, 0, ...].
#
# > **Exercise.** `minitx exercises start causal_attention`
#
# ## 4. Attention does not know where things are
#
# Swap two tokens of the past: the same keys with the same values are there, in another order.
#
# **Question.** Does the last output change?

# %%
swapped = np.array([1, 0, *range(2, length)])
same, _ = attention_by_hand(query, key[swapped], value[swapped])
print("change of the last output:", f"{np.abs(same[-1] - by_hand[-1]).max():.0e}")

# %% [markdown]
# It does not. Order must be put in: by adding a vector for each position (learned or sinusoidal), by a
# penalty that grows with distance (ALiBi), or by *rotating* queries and keys by an angle that grows with
# position (RoPE). After rotation the score depends on the *offset* between query and key only:

# %%
angles = np.arange(40)[:, None] * 10000.0 ** (-np.arange(width // 2) / (width // 2))  # [T, K/2]
one_key = np.broadcast_to(key[0], (1, 40, 1, width))
one_query = np.broadcast_to(query[0], (1, 40, 1, width))
rotated_q, rotated_k = (
    ops.rotary(x, np.cos(angles), np.sin(angles)).numpy()[0, :, 0] for x in (one_query, one_key)
)
products = rotated_q @ rotated_k.T  # [query position, key position]

fig, ax = plots.figure(panel=(6.0, 3.2))
for n, at in enumerate((39, 30, 20)):
    look = plots.look(n)
    ax.plot(
        at - np.arange(at + 1),
        products[at, : at + 1],
        color=look.color,
        marker=look.marker,
        markersize=9 - 3 * n,
        linestyle="none",
        label=f"query at position {at}",
    )
plots.label(ax, "One curve, wherever the query stands", x="distance to the key", y="score")
plots.legend(ax, loc="upper left", bbox_to_anchor=(1.0, 1.0))
plots.suptitle(fig, "RoPE: the same query and key at all pairs of positions")

# %% [markdown]
# ## 5. A whole transformer
#
# Now a model with everything: embeddings, one attention layer, RoPE, and an output. The task is small
# enough to understand completely. Most tokens follow from the token before them, by a fixed table. But
# after a *trigger* (`!1`, `!2`, `!3`) the answer is the token **before** the trigger:

# %%
task = BigramBackcopy(table_seed=seed)
print(task.describe(np.random.default_rng(seed)))

# %%
config = tx.TransformerConfig(
    vocab_size=task.vocab_size,
    max_len=task.max_len,
    d_model=64,
    n_heads=1,
    n_layers=1,
    positions="rotary",
    mlp="none",
    bias=False,
    norm_bias=True,
)
model = tx.Transformer(config, rng=np.random.default_rng(seed))
print("parameters:", sum(p.size for p in model.parameters()))
print("tokens:", task.vocab_size, "  ln(tokens) =", round(float(np.log(task.vocab_size)), 3))

# %% [markdown]
# **Question.** What is the loss of this model before training? And the lowest loss that any model can
# reach? (It may know the table, but not the dice.)

# %%
batch = task.sample(64, np.random.default_rng(seed + 1))
start = tx.cross_entropy(model(batch.tokens), batch.targets).item()
floor = task.entropy()[batch.tokens].mean()
history = tx.fit(
    model,
    task,
    steps=steps,
    lr=1e-2,
    betas=(0.9, 0.99),
    schedule=linear_decay(start=0.7, end=0.05),
    rng=np.random.default_rng(seed + 2),
)
print(f"before training {start:.3f},  after {history.final_loss:.3f},  lowest possible {floor:.3f}")

# %%
fig, ax = plots.figure(panel=(6.0, 3.4))
ax.plot(history.loss, color=plots.TREATMENT.color)
ax.axhline(np.log(task.vocab_size), color="0.4", linestyle=":", label="ln(tokens): knows nothing")
ax.axhline(floor, color="black", linestyle="--", label="entropy: knows all there is")
ax.set_ylim(0)
plots.label(ax, "From knowing nothing to knowing all there is", x="step", y="loss (nats)")
plots.legend(ax, loc="upper right")
plots.suptitle(fig, "Training")

# %% [markdown]
# An untrained model spreads its bets over all tokens, so it loses ln(number of tokens). If yours starts
# elsewhere, something is wrong before training has begun. The end is the entropy of the table: no model
# can guess the dice.
#
# ## 6. What has the head learned?
#
# **Question.** Where must the head look after a trigger? And where *should* it look otherwise, when the
# current token already says everything?

# %%
shown = 24
logits, cache = model.run_with_cache(batch.tokens)
pattern = cache["pattern", 0]  # [batch, head, query, key]
triggers = batch.info["trigger"]
best = triggers[:, :shown].sum(axis=1).argmax()  # the sequence with the most triggers
names = [task.name_of(token) for token in batch.tokens[best, :shown]]

fig, ax = plots.figure(panel=(7.0, 6.4))
plots.pattern(ax, pattern[best, 0, :shown, :shown], tokens=names)
plots.label(ax, "After a trigger (!) the head looks one token back", wrap=70)
plots.suptitle(fig, "What the head looks at")

# %%
right = logits.numpy().argmax(axis=-1) == batch.targets
back = np.diagonal(pattern[:, 0], offset=-1, axis1=1, axis2=2)  # weight on the previous token
print(f"copies after a trigger that are right: {right[triggers].mean():.0%}")
print(f"attention on the previous token, after a trigger: {back[triggers[:, 1:]].mean():.2f}")
print(f"the same elsewhere:                               {back[~triggers[:, 1:]].mean():.2f}")
print(
    f"attention on the first token, elsewhere:          {pattern[:, 0, 1:, 0][~triggers[:, 1:]].mean():.2f}"
)

# %% [markdown]
# After a trigger the head does its work. At every other position it has nothing to do, but its weights
# must sum to one. So it looks at the **first token**: a dark column that nobody asked for. It is the
# *attention sink* of large language models, in a model with one head. Tutorial 3 asks why.
#
# ## 7. Let it write

# %%
written = model.generate(batch.tokens[:1, :4], 20, rng=np.random.default_rng(seed), temperature=1.0)
print(" ".join(task.name_of(token) for token in np.asarray(written)[0]))

# %% [markdown]
# **Question.** Check its triggers: is each `!` followed by the token before it?
#
# ## What to take with you
#
# - Attention is a weighted mean; the weights come from a softmax and sum to one.
# - Mask before the softmax. Divide by √K. Add positions, or there are none.
# - Know the loss you expect at the start (ln V) and at the end (entropy) before you train.
#
# **Try next.** Set `positions="none"` in the configuration: what becomes of the copies? Take
# `steps = 100`. Give the model four heads: which one copies, and what do the others do?
#
# Next: [3. Attention sinks](3_sinks.ipynb)
