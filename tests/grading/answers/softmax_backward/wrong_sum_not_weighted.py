# says: it has to be weighted by y
# fails: one row, many rows, masked rows, good manners


def softmax_backward(g, y):
    return y * (g - g.sum(axis=-1, keepdims=True))
