# says: the argument 'g' is changed in place
# fails: good manners


def softmax_backward(g, y):
    total = (g * y).sum(axis=-1, keepdims=True)
    g -= total
    g *= y
    return g
