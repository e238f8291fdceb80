# says: you sum the axes that broadcasting added in front, but not the axes of size 1
# fails: stretched axes, both at once, good manners


def unbroadcast(grad, shape):
    extra = grad.ndim - len(shape)
    return grad.sum(axis=tuple(range(extra))) if extra else grad
