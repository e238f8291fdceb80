# says: is only the diagonal of the Jacobian
# fails: one row, many rows, masked rows, good manners


def softmax_backward(g, y):
    return g * y * (1 - y)
