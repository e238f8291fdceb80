import numpy as np


def induction_score(pattern, tokens):
    same = np.equal.outer(tokens, tokens)  # [t, s]
    wanted = np.tril(np.pad(same, ((0, 0), (1, 0)))[:, :-1])
    rows = wanted.any(axis=1)
    if not rows.any():
        return np.full(len(pattern), np.nan)
    return np.einsum("hts,ts->h", pattern, wanted) / rows.sum()
