"""The whole transformer once more, in plain NumPy, for one sequence: what every config should mean.

Nothing of the package is used but the names of the parameters. Loops where a loop is clearest.

Every attention kind and every MLP has its twin here, found by its name: `WEIGHTS`, `MLPS`.
"""

from __future__ import annotations

import numpy as np

ALIBI = {1: [8], 2: [4, 8], 3: [4, 8, 2]}  # slope 2^-n of each head, by number of heads


def forward(c, p, tokens):
    """Logits [T, V] of one sequence [T]; config ``c``, parameters ``p`` by name."""
    T = len(tokens)
    at = np.arange(T)
    x = p["embed.weight"][tokens]
    if c.positions == "learned":
        x = x + p["pos_embed.weight"][:T]
    if c.positions == "sinusoidal":
        for i in range(c.d_model):
            wave = (np.sin, np.cos)[i % 2]
            x[:, i] += c.embed_std * wave(at / 10000 ** ((i - i % 2) / c.d_model))
    for i in range(c.n_layers):
        b = {
            n.removeprefix(f"blocks.{i}."): a for n, a in p.items() if n.startswith(f"blocks.{i}.")
        }
        b |= {n: a for n, a in p.items() if n.startswith("pos_embed")}
        x = sublayer(c, b, "ln1", x, lambda y, b=b: attention(c, b, y))
        if c.mlp != "none":
            x = sublayer(c, b, "ln2", x, lambda y, b=b: mlp(c, b, y))
    if c.final_norm:
        x = norm(c, p, "ln_final", x)
    return x @ p["embed.weight" if c.tied else "unembed.weight"].T


def sublayer(c, b, name, x, f):
    if c.norm_position == "pre":
        return c.residual * x + f(norm(c, b, name, x))
    return norm(c, b, name, c.residual * x + f(x))


def norm(c, b, name, x):
    if c.norm == "none":
        return x
    if c.norm == "layernorm":
        x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    return x * b[f"{name}.weight"] + b.get(f"{name}.bias", 0)


def linear(b, name, x):
    return x @ b[f"{name}.weight"].T + b.get(f"{name}.bias", 0)


def mlp(c, b, x):
    return linear(b, "mlp.down", twin(MLPS, c.mlp)(b, x))


def gelu(b, x):
    x = linear(b, "mlp.up", x)
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


# What goes into the last linear layer, [T, D] -> [T, M].
MLPS = {
    "gelu": gelu,
    "relu": lambda b, x: np.maximum(linear(b, "mlp.up", x), 0),
    "swiglu": lambda b, x: silu(linear(b, "mlp.gate", x)) * linear(b, "mlp.up", x),
    "none": None,  # never asked: there is no such sublayer
}


def attention(c, b, x):
    T, K = len(x), c.d_head
    q, k, v = (linear(b, f"attn.{n}", x).reshape(T, -1, K) for n in ("query", "key", "value"))
    s = np.stack([scores(c, b, q[:, h], k[:, h], h) for h in range(c.n_heads)])  # [H, T, T]
    s[:, ~visible(c, T)] = -np.inf
    if c.key_bias or c.sink_logit:
        extra = np.zeros((c.n_heads, T, 1))
        for h in range(c.n_heads):
            if c.key_bias:
                extra[h, :, 0] += q[:, h] @ b["attn.extra_key"][h] / np.sqrt(K)
            if c.sink_logit:
                extra[h] += b["attn.sink_logit"][h]
        s = np.concatenate([s, extra], axis=2)
    w = twin(WEIGHTS, c.attention)(c, s)
    z = np.stack([w[h, :, :T] @ v[:, h] for h in range(c.n_heads)], axis=1)  # [T, H, K]
    if c.gate != "none":
        z = z * sigmoid(linear(b, "attn.gate", x)).reshape(T, c.n_heads, -1)
    return linear(b, "attn.output", z.reshape(T, -1))


def scores(c, b, q, k, h):
    """[T, T] for head h."""
    T, K = q.shape
    s = np.zeros((T, T))
    for i in range(T):
        for j in range(T):
            a = turn(c, q[i], i) @ turn(c, k[j], j) if c.positions == "rotary" else q[i] @ k[j]
            s[i, j] = a / np.sqrt(K)
            if c.positions == "alibi":
                s[i, j] -= abs(i - j) * 2.0 ** -ALIBI[c.n_heads][h]
            if c.positions == "logit_bias":
                s[i, j] += b["pos_embed.weight"][j, h]
    return s


def turn(c, x, at):
    half = len(x) // 2
    rates = c.rope_base ** (-np.arange(half) / half)
    turned = (x[:half] + 1j * x[half:]) * np.exp(1j * at * rates)
    return np.concatenate([turned.real, turned.imag])


def visible(c, T):
    i, j = np.arange(T)[:, None], np.arange(T)[None, :]
    near = i - j < (c.window or 0)
    return {
        "causal": j <= i,
        "bidirectional": j >= 0 * i,
        "sliding_window": (j <= i) & near,
        "window_sinks": (j <= i) & (near | (j < (c.n_sinks or 0))),
        "prefix": (j <= i) | ((i < (c.prefix_len or 0)) & (j < (c.prefix_len or 0))),
    }[c.mask]


# --- scores [H, T, S], minus infinity where nothing may be seen -> weights [H, T, S] ----------------


def softmax(c, s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax1(c, s):
    top = np.maximum(s.max(-1, keepdims=True), 0)
    e = np.exp(s - top)
    return e / (e.sum(-1, keepdims=True) + np.exp(-top))


def clipped_softmax(c, s):
    stretched = (c.clip_zeta - c.clip_gamma) * softmax(c, s) + c.clip_gamma
    return seen(s, np.clip(stretched, 0, 1))


def selective(c, s):
    T = s.shape[1]
    hidden = np.zeros(s.shape[1:])  # how much earlier queries have hidden, by head 0
    for t in range(T):
        for j in range(1, T):
            hidden[t, j] = sum(max(s[0, i, j], 0) for i in range(j + 1, t))
    return softmax(c, s - hidden)


WEIGHTS = {
    "softmax": softmax,
    "softmax1": softmax1,
    "sigmoid": lambda c, s: seen(s, sigmoid(np.where(s > -np.inf, s, 0))),
    "relu": lambda c, s: np.maximum(s, 0) / c.max_len,
    "linear": lambda c, s: seen(s, s),
    "clipped_softmax": clipped_softmax,
    "selective": selective,
}


def seen(s, weights):
    return np.where(s > -np.inf, weights, 0)


def twin(twins, name):
    assert name in twins, (
        f"{name!r} has no twin in {__name__}: write it in plain NumPy, add its name"
    )
    return twins[name]


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


def silu(x):
    return x * sigmoid(x)
