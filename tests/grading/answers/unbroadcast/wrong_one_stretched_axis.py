# says: you sum only one of the stretched axes
# fails: stretched axes, both at once, good manners


def unbroadcast(grad, shape):
    while grad.ndim > len(shape):
        grad = grad.sum(axis=0)
    if 1 in shape:
        grad = grad.sum(axis=shape.index(1), keepdims=True)
    return grad
