"""Exercise 4 of 6: one attention head, causal, with padding (10 points).

Every position t asks with its query, compares it with the keys of the positions it may see, and
takes a weighted mean of their values:

    scores[t, s]  = query[t] . key[s] / sqrt(K)
    pattern[t, s] = exp(scores[t, s]) / (sum of exp(scores[t, s']) over the s' that t may see)
    z[t]          = sum_s pattern[t, s] value[s]

Position t may see position s if s is not in the future (s <= t, itself included) and s is not
padding (``keep[s]`` is True). A position that may see nothing at all gets z[t] = 0.

Scores can be large: exp(1000) overflows, though the pattern is well defined. Subtracting the same
number from all the scores of a row does not change its pattern.

Check your work with:  minitx grade causal_attention causal_attention.py
"""

import numpy as np


def causal_attention(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, keep: np.ndarray
) -> np.ndarray:
    """What one head reads at each position.

    Parameters
    ----------
    query, key : array [T, K]
    value : array [T, V]
        V can differ from K.
    keep : bool array [T]
        False marks a padding position, which nobody may attend to.

    Returns
    -------
    array [T, V], with the dtype of ``value``. The inputs are not changed.

    Examples
    --------
    Equal scores: each position takes the mean of what it sees.

    >>> same = np.zeros((3, 4))
    >>> value = np.array([[0.0], [1.0], [5.0]])
    >>> causal_attention(same, same, value, np.array([True, True, True]))
    array([[0. ],
           [0.5],
           [2. ]])
    >>> causal_attention(same, same, value, np.array([False, True, True]))
    array([[0.],
           [1.],
           [3.]])
    """
    raise NotImplementedError
