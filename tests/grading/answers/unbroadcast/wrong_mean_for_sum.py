# says: you take the mean over the stretched axes
# fails: added axes, stretched axes, both at once, good manners


def unbroadcast(grad, shape):
    extra = grad.ndim - len(shape)
    grad = grad.mean(axis=tuple(range(extra))) if extra else grad
    for axis, n in enumerate(shape):
        if n == 1:
            grad = grad.mean(axis=axis, keepdims=True)
    return grad
