# says: you assume that the second half repeats the first
# fails: anywhere, several times, a perfect head, many heads, no repeats, good manners
import numpy as np


def induction_score(pattern, tokens):
    half = len(tokens) // 2
    rows = np.arange(half, len(tokens))
    return pattern[:, rows, rows - half + 1].mean(axis=-1)
