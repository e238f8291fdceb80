# %% [markdown]
# # 1. Autograd: from one multiplication to backward through a graph
#
# **At the end you will understand**
#
# - what a gradient is, and why a computer never needs a formula for the whole function;
# - how `backward()` walks through a computation, and in which order;
# - why gradients *add up* where a value is used more than once, and what broadcasting has to do with it;
# - how to check a gradient, and why a demo that "trains" proves nothing;
# - how to teach minitx a new operation in three lines.
#
# Time: about 30 minutes. You need Python, NumPy, and the chain rule from school.
#
# At each **Question**, stop and answer before you read on. The knobs are plain variables at the top:
# change them, and run everything again.

# %%
# %matplotlib inline
import numpy as np

import minitx as tx
from minitx import ops, plots
from minitx.plots.graphs import graph

# Knobs
x0, w0, b0 = 3.0, 2.0, -1.0  # the numbers of sections 1 and 2
steps = 400  # training steps of section 7
width = 16  # hidden units of section 7
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. One multiplication
#
# A `Tensor` is an array that remembers how it was made. Take `y = w * x`.
#
# **Question.** If `w` grows by a tiny amount, by how many times that amount does `y` grow? And if `x` does?

# %%
x = tx.tensor(x0, requires_grad=True)
w = tx.tensor(w0, requires_grad=True)
y = w * x
y.backward()
print("y      =", y.item())
print("dy/dw  =", w.grad, " (this is x)")
print("dy/dx  =", x.grad, " (this is w)")

# %% [markdown]
# A derivative is a rate of exchange: *how much of y do I get for a little more of w?* For a product it is
# the other factor. That is all that multiplication has to know. Here is its rule as it stands in
# `minitx/autograd/ops.py`, forward and backward side by side: what comes in from behind (`g`, the
# gradient of the final result for this product) is multiplied by the other factor.
#
# ```python
# @primitive
# def multiply(a, b):
#     """``a * b``"""
#     return np.multiply(a, b), lambda g: g * b, lambda g: g * a
# ```
#
# ## 2. A chain
#
# Longer computations need nothing new. Each operation has its own little rule, and rates of exchange
# multiply: if 1 of w buys 3 of m, and 1 of m buys 10 of y, then 1 of w buys 30 of y.
#
# **Question.** With `x = 3, w = 2, b = -1`: what is the gradient of `y = (w x + b)²` for `b`? For `w`?

# %%
x, w, b = (tx.tensor(v, requires_grad=True) for v in (x0, w0, b0))
m = w * x
s = m + b
y = s * s
for middle in (m, s):
    middle.retain_grad()  # gradients in the middle are thrown away unless we ask for them
y.backward()

nodes = {"w": w, "x": x, "b": b, "m": m, "s": s}
fig, ax = plots.figure(size=(8.0, 3.6))
graph(
    ax,
    {"w": [], "x": [], "b": [], "m": ["w", "x"], "s": ["m", "b"], "y": ["s", "s"]},
    values={**{name: f"{t.item():g}" for name, t in nodes.items()}, "y": f"{y.item():g}"},
    gradients={**{name: f"{t.grad:g}" for name, t in nodes.items()}, "y": "1"},
)
plots.suptitle(fig, "Values flow to the right (black), gradients to the left (red)")

# %% [markdown]
# Read the red numbers from right to left. At `y` we start with 1. The square `s * s` uses `s` **twice**,
# and each use sends back `1 * s`: together `2 s`. The sum passes on what it gets, unchanged, to both of
# its inputs. The product hands `w` the factor `x`, and `x` the factor `w`.
#
# ## 3. Gradients add up, and why the order matters
#
# **Question.** `b = a + a`, then `c = b + b`. What is dc/da?

# %%
a = tx.tensor(1.0, requires_grad=True)
b = a + a
c = b + b
c.backward()
print("dc/da =", a.grad)

# %% [markdown]
# Four: `c` is `4 a`. `b` got 1 from each of its two uses, so 2; and passed 2 on, twice.
#
# But *when* may `b` pass its gradient on? Only when **both** shares have arrived. If it is visited after
# the first, `a` gets too little. In this graph the trap is easier to see:

# %%
inputs = {"a": [], "b": ["a"], "c": ["a", "b"], "d": ["b", "c"]}
fig, ax = plots.figure(size=(7.0, 2.0))
graph(ax, inputs)
plots.suptitle(fig, "d is made from b and c, c from a and b, b from a")

# %% [markdown]
# **Question.** Backward starts at `d`. Which node may be visited next, `b` or `c`? And after that?
#
# `d` gives a share to `b` and to `c`. But `b` must wait: `c` uses it too. The only right order is
# d, c, b, a: *every node after all the nodes that use it*. This is a **topological order**. Breadth-first
# order (d, b, c, a) would visit `b` too early.
#
# > **Exercise.** `minitx exercises start topological_order`
#
# ## 4. Broadcasting is a value used many times
#
# Add a bias of shape (3,) to an array of shape (5, 3): NumPy uses each entry of the bias in five rows.
#
# **Question.** If the result's gradient is all ones, what is the gradient of the bias?

# %%
rows = tx.tensor(np.zeros((5, 3)), requires_grad=True)
bias = tx.tensor(np.array([0.1, 0.2, 0.3]), requires_grad=True)
(rows + bias).sum().backward()
print("gradient of the rows:", rows.grad.shape)
print("gradient of the bias:", bias.grad)

# %% [markdown]
# Used five times, so five shares are added up. In minitx this is done in one central place
# (`unbroadcast` in `engine.py`), and no rule has to think of it.
#
# > **Exercise.** `minitx exercises start unbroadcast`
#
# ## 5. How do you know that a gradient is right?
#
# Move the input a little and look: `(f(x + h) - f(x - h)) / 2h`. A smaller `h` should be better...
#
# **Question.** Is it? What happens at h = 1e-15?
#
# There is a second way. Feed an *imaginary* step through the function: for smooth functions
# `Im f(x + ih) / h` is the derivative as well, and nothing is subtracted.


# %%
def f(x):
    return np.exp(np.sin(x)) / x


at = 1.3
exact = f(at) * (np.cos(at) - 1 / at)
h = 10.0 ** np.arange(-20, 0)
with np.errstate(all="ignore"):
    central = np.abs((f(at + h) - f(at - h)) / (2 * h) - exact) / abs(exact)
    complex_step = np.abs(np.imag(f(at + 1j * h)) / h - exact) / abs(exact)

fig, ax = plots.figure(panel=(6.4, 3.6))
for n, (error, name) in enumerate(
    [(central, "central difference"), (complex_step, "complex step")]
):
    look = plots.look(n)
    ax.loglog(
        h,
        np.maximum(error, 1e-17),
        color=look.color,
        marker=look.marker,
        linestyle=look.linestyle,
        label=name,
    )
plots.label(
    ax,
    "Small steps ruin a difference, but not a complex step",
    x="step h",
    y="relative error of the derivative",
    wrap=70,
)
ax.set_ylim(3e-18, 10)
plots.legend(ax, loc="lower right")
plots.suptitle(fig, "Two ways to check a gradient")

# %% [markdown]
# Large steps miss the curvature; small ones subtract two nearly equal numbers and lose all their digits.
# At best about ten digits are right. The complex step is exact to the last digit, for any small `h`:
# `tx.gradcheck` uses it wherever the operation allows.
#
# Why so strict? Here is a softmax whose backward rule has a **mean** where the formula has a **sum**.

# %%
from minitx.autograd.ops import primitive


@primitive
def slightly_wrong_softmax(x):
    e = np.exp(x - np.real(x).max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, lambda g: y * (g - (g * y).mean(axis=-1, keepdims=True))


def train(softmax, steps=100):
    """Move scores until softmax puts nearly all weight on entry 2; returns that weight over time."""
    scores, weight = tx.tensor(np.zeros(4), requires_grad=True), []
    for _ in range(steps):
        chosen = softmax(scores)[2]
        (-ops.log(chosen)).backward()
        scores.data -= 0.5 * scores.grad
        scores.grad = None
        weight.append(chosen.item())
    return weight


# %% [markdown]
# **Question.** Will training with the wrong rule fail?

# %%
fig, ax = plots.figure(panel=(6.0, 3.2))
for n, (softmax, name) in enumerate(
    [(ops.softmax, "right rule"), (slightly_wrong_softmax, "mean for sum")]
):
    look = plots.look(n)
    ax.plot(train(softmax), color=look.color, linestyle=look.linestyle, label=name, linewidth=2)
plots.label(ax, "Both learn: a demo proves nothing", x="step", y="weight on the right entry")
ax.set_ylim(0, 1.02)
plots.legend(ax, loc="lower right")
plots.suptitle(fig, "A wrong gradient that trains")

# %%
scores = rng.normal(size=4)
print("right rule:", tx.gradcheck(ops.softmax, scores))
try:
    tx.gradcheck(slightly_wrong_softmax, scores)
except tx.GradcheckError as error:
    print("mean for sum:", error)

# %% [markdown]
# > **Exercise.** Write the right rule: `minitx exercises start softmax_backward`
#
# ## 6. Teach minitx an operation
#
# A primitive is a function of arrays that returns its output and the rule that maps the output's
# gradient to the input's. Softplus, `log(1 + e^x)`, has the sigmoid as its derivative:


# %%
@primitive
def softplus(x):
    y = np.log1p(np.exp(x))
    return y, lambda g: g / (1 + np.exp(-x))


print(tx.gradcheck(softplus, rng.normal(size=(2, 3))))

# %% [markdown]
# Broadcasting, repeated use, the order of the walk: the engine takes care of these.
#
# ## 7. Now train something
#
# With gradients in hand, learning is one line: step against them. A network of two layers learns a curve.
#
# **Question.** Will the loss fall evenly, or in stages? Which part of the curve is learned last?

# %%
t = np.linspace(-3, 3, 80)[:, None]
target = np.sin(2 * t) + 0.3 * t
first = tx.tensor(rng.normal(size=(width, 1)), requires_grad=True)
offset = tx.tensor(rng.normal(size=width), requires_grad=True)
second = tx.tensor(rng.normal(size=(1, width)) * 0.1, requires_grad=True)
optimizer = tx.Adam([first, offset, second], lr=0.03)


def network(t):
    return ops.linear(ops.tanh(ops.linear(t, first, offset)), second)


before = network(t).numpy()
losses = []
for _ in range(steps):
    loss = ((network(t) - target) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())

fig, (left, right) = plots.figure(ncols=2)
left.plot(t, target, color="black", linewidth=1, label="target")
left.plot(t, before, color=plots.CONTROL.color, linestyle="--", label="before")
left.plot(t, network(t).numpy(), color=plots.TREATMENT.color, linewidth=2, label="after")
plots.label(left, "The curve", x="input", y="output")
plots.legend(left, loc="upper left")
right.semilogy(losses, color=plots.TREATMENT.color)
plots.label(right, "The loss", x="step", y="mean squared error")
plots.suptitle(fig, f"{steps} steps against the gradient")

# %% [markdown]
# Everything that follows in this course, attention included, is this loop with a larger function.
#
# ## What to take with you
#
# - Each operation knows one local rule; `backward()` chains them, from the end to the start.
# - A value that is used n times collects n gradients; it passes them on when all have come.
# - Check gradients with numbers, not with a loss that goes down.
#
# **Try next.** Give `train` above a larger learning rate. Replace `tanh` by `relu`. Write `@primitive`
# for `x ** 3`, get it wrong on purpose, and see what `gradcheck` says.
#
# Next: [2. Attention by hand](2_attention.ipynb)
