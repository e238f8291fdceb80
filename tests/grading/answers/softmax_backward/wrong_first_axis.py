# says: the sum runs over the first axis
# fails: many rows, masked rows, good manners


def softmax_backward(g, y):
    return y * (g - (g * y).sum(axis=0))
