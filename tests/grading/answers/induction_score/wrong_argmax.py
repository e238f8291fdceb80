# says: you count how often the largest weight is on a wanted key
# fails: repeated sequence, anywhere, several times, many heads, good manners
import numpy as np


def induction_score(pattern, tokens):
    heads, length, _ = pattern.shape
    score = []
    for h in range(heads):
        rows = []
        for t in range(length):
            wanted = [s + 1 for s in range(t) if tokens[s] == tokens[t]]
            if wanted:
                rows.append(float(pattern[h, t].argmax() in wanted))
        score.append(np.mean(rows) if rows else np.nan)
    return np.array(score)
