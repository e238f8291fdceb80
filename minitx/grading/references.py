"""The right answers, from the package's own functions, under the exercises' names and signatures.

Checked against student code in the grader's process only: the student's process cannot import them.
"""

from __future__ import annotations

import numpy as np

from minitx.interp import scores
from minitx.kernels import reference


def unbroadcast(grad, shape):
    from minitx.autograd import engine

    return engine.unbroadcast(grad, tuple(shape))


def softmax_backward(g, y):
    return reference.softmax_backward(g, y)


def topological_order(root, inputs):
    """Depth first with a stack of its own; a node is placed when all it was made from is placed."""
    placed, seen, stack = [], set(), [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            placed.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack.extend((i, False) for i in inputs[node])
    return placed[::-1]


def causal_attention(query, key, value, keep):
    length, width = query.shape
    mask = np.tri(length, dtype=bool) & keep[None, :]
    q, k, v = (x[None, :, None, :] for x in (query, key, value))  # [1, T, 1, K]
    z, _ = reference.attention(q, k, v, mask=mask, scale=1.0 / np.sqrt(width))
    return z[0, :, 0, :]


def attention_received(pattern):
    queries = np.arange(pattern.shape[-1], 0, -1)  # key k can be seen by T - k queries
    return scores.absolute_shares(pattern).sum(-2) / queries


def sink_metric(pattern, epsilon):
    return float(np.mean(scores.sink_rate(scores.absolute_shares(pattern), threshold=epsilon)))


def induction_score(pattern, tokens):
    return scores.induction_score(pattern, tokens)
