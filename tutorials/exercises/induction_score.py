"""Exercise 6 of 6: does a head look at what followed the last time? (10 points)

An *induction head* continues what it has seen: at "... A B ... A" it looks at B, the token that
followed the earlier A. To find such heads, score their attention patterns. Query t wants the keys

    s <= t  with  tokens[s - 1] == tokens[t]   and   s - 1 >= 0,  s - 1 < t

(s is the position after an earlier occurrence of t's token; it can be t itself when a token comes
twice in a row). A head's score is

    the mean, over the queries that want at least one key,
    of the attention they put on all the keys they want, added up.

Queries whose token has not occurred before want nothing and are left out of the mean, so a perfect
induction head scores exactly 1. If no token repeats, nothing can be scored: nan.
(Olsson et al. 2022, *In-context Learning and Induction Heads*, where it is called prefix matching.)

Check your work with:  minitx grade induction_score induction_score.py
"""

import numpy as np


def induction_score(pattern: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The induction score of every head.

    Parameters
    ----------
    pattern : array [H, T, T]
        ``pattern[h, t, s]``: how much query t of head h looks at key s. Causal: 0 where s > t.
    tokens : int array [T]

    Returns
    -------
    array [H], nan where no token repeats. ``pattern`` is not changed.

    Examples
    --------
    >>> tokens = np.array([7, 8, 7, 8])
    >>> induction = np.zeros((4, 4))
    >>> induction[0, 0] = induction[1, 0] = 1       # nothing to look for yet
    >>> induction[2, 1] = 1                         # the second 7 looks at the 8 after the first
    >>> induction[3, 2] = 0.5                       # the second 8: half on the 7 after the first 8,
    >>> induction[3, 0] = 0.5                       # half on the first token
    >>> induction_score(induction[None], tokens)    # (1 + 0.5) / 2
    array([0.75])
    """
    raise NotImplementedError
