# says: off by one: you add up attention on the earlier occurrence itself
# fails: repeated sequence, anywhere, several times, a perfect head, many heads, good manners
import numpy as np


def induction_score(pattern, tokens):
    heads, length, _ = pattern.shape
    score = []
    for h in range(heads):
        rows = []
        for t in range(length):
            wanted = [s for s in range(t) if tokens[s] == tokens[t]]
            if wanted:
                rows.append(sum(pattern[h, t, s] for s in wanted))
        score.append(np.mean(rows) if rows else np.nan)
    return np.array(score)
