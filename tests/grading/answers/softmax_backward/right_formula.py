def softmax_backward(g, y):
    return y * (g - (g * y).sum(axis=-1, keepdims=True))
