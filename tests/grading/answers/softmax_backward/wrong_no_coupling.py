# says: the term that couples the entries is missing
# fails: one row, many rows, masked rows, good manners


def softmax_backward(g, y):
    return g * y
