"""Exercise 5 of 6: how much of a sink is the first token? (10 points)

Many heads park their attention on the first token. To count them, first ask how much attention
key k receives from the queries that can see it (all positions count from 0; T is the length):

    alpha_k = sum over queries i >= k of A[i, k], divided by T - k

and then in how many heads the first token receives more than a threshold epsilon:

    sink = mean over samples and heads of 1[alpha_0 > epsilon]

The indicator 1[...] comes before the mean: a head is a sink or it is not. (Gu et al. 2024, *When
Attention Sink Emerges in Language Models*; there epsilon = 0.3.)

Some attention variants have weights with signs, or rows that do not sum to one. For them replace
each row by its shares |a| / sum |a| first; a row whose weights are all 0 stays 0. Rows of a softmax
do not change by this.

Check your work with:  minitx grade sink_metric sink_metric.py
"""

import numpy as np


def attention_received(pattern: np.ndarray) -> np.ndarray:
    """alpha_k for every key.

    Parameters
    ----------
    pattern : array [B, H, T, T]
        ``pattern[b, h, i, k]``: how much query i looks at key k. Causal: 0 where k > i.

    Returns
    -------
    array [B, H, T]. ``pattern`` is not changed.

    Examples
    --------
    >>> pattern = np.array([[[[1.0, 0.0], [0.5, 0.5]]]])
    >>> attention_received(pattern)       # key 0: (1 + 0.5) / 2; key 1: 0.5 / 1
    array([[[0.75, 0.5 ]]])
    """
    raise NotImplementedError


def sink_metric(pattern: np.ndarray, epsilon: float) -> float:
    """The share of samples and heads in which the first token receives more than ``epsilon``.

    Parameters
    ----------
    pattern : array [B, H, T, T]
    epsilon : float

    Returns
    -------
    float, from 0 to 1

    Examples
    --------
    One head that always looks at the first token, and one in which every query looks at itself.

    >>> pattern = np.array([[[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    >>> sink_metric(pattern, 0.6)         # alpha_0 is 1 in one head, 0.5 in the other
    0.5
    """
    raise NotImplementedError
