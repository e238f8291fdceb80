# says: you sum only one of the added axes
# fails: added axes, both at once, good manners


def unbroadcast(grad, shape):
    if grad.ndim > len(shape):
        grad = grad.sum(axis=0)
    for axis, n in enumerate(shape):
        if n == 1:
            grad = grad.sum(axis=axis, keepdims=True)
    return grad
