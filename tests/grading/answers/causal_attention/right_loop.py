import numpy as np


def causal_attention(query, key, value, keep):
    out = np.zeros_like(value)
    for t in range(len(query)):
        seen = [s for s in range(t + 1) if keep[s]]
        if seen:
            scores = np.array([query[t] @ key[s] for s in seen]) / len(query[t]) ** 0.5
            weights = np.exp(scores - scores.max())
            out[t] = sum(w * value[s] for w, s in zip(weights / weights.sum(), seen, strict=True))
    return out
