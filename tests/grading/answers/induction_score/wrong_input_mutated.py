# says: the argument 'pattern' is changed in place
# fails: good manners
import numpy as np


def induction_score(pattern, tokens):
    same = np.equal.outer(tokens, tokens)
    wanted = np.tril(np.pad(same, ((0, 0), (1, 0)))[:, :-1])
    pattern[:, ~wanted] = 0
    rows = wanted.any(axis=1)
    if not rows.any():
        return np.full(len(pattern), np.nan)
    return pattern[:, rows].sum(axis=-1).mean(axis=-1)
