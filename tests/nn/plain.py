"""The whole transformer once more, in plain NumPy, for one sequence: what every config should mean.

Nothing of the package is used but the names of the parameters. Loops where a loop is clearest.
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
    if c.mlp == "swiglu":
        g = linear(b, "mlp.gate", x)
        return linear(b, "mlp.down", g * sigmoid(g) * linear(b, "mlp.up", x))
    x = linear(b, "mlp.up", x)
    if c.mlp == "relu":
        return linear(b, "mlp.down", np.maximum(x, 0))
    x = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return linear(b, "mlp.down", x)


def attention(c, b, x):
    T, K = len(x), c.d_head
    q, k, v = (linear(b, f"attn.{n}", x).reshape(T, -1, K) for n in ("query", "key", "value"))
    z = np.zeros_like(v)
    hidden = np.zeros((T, T))  # selective: how much earlier queries have hidden, from head 0
    for h in range(c.n_heads):
        s = scores(c, b, q[:, h], k[:, h], h)
        s[~visible(c, T)] = -np.inf
        if c.attention == "selective" and h == 0:
            for t in range(T):
                for j in range(1, T):
                    hidden[t, j] = sum(max(s[i, j], 0) for i in range(j + 1, t))
        s = s - hidden
        extra = []
        if c.key_bias or c.sink_logit:
            e = np.zeros(T)
            if c.key_bias:
                e += q[:, h] @ b["attn.extra_key"][h] / np.sqrt(K)
            if c.sink_logit:
                e += b["attn.sink_logit"][h]
            extra = [e[:, None]]
        w = weigh(c, np.concatenate([s, *extra], axis=1))[:, :T]
        z[:, h] = w @ v[:, h]
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
    near = i - j < c.window
    return {
        "causal": j <= i,
        "bidirectional": j >= 0 * i,
        "sliding_window": (j <= i) & near,
        "window_sinks": (j <= i) & (near | (j < c.n_sinks)),
        "prefix": (j <= i) | ((i < c.prefix_len) & (j < c.prefix_len)),
    }[c.mask]


def weigh(c, s):
    """Scores [T, S], minus infinity where nothing may be seen -> weights."""
    allowed = s > -np.inf
    if c.attention == "sigmoid":
        return np.where(allowed, sigmoid(np.where(allowed, s, 0)), 0)
    if c.attention == "relu":
        return np.maximum(s, 0) / c.max_len
    if c.attention == "linear":
        return np.where(allowed, s, 0)
    top = s.max(-1, keepdims=True)
    if c.attention == "softmax1":
        top = np.maximum(top, 0)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    if c.attention == "softmax1":
        total = total + np.exp(-top)
    if c.attention == "clipped_softmax":
        stretched = np.clip((c.clip_zeta - c.clip_gamma) * e / total + c.clip_gamma, 0, 1)
        return np.where(allowed, stretched, 0)
    return e / total


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))
