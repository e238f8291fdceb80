# says: the argument 'grad' is changed in place
# fails: good manners


def unbroadcast(grad, shape):
    extra = grad.ndim - len(shape)
    axes = [i for i in range(grad.ndim) if i < extra or shape[i - extra] == 1]
    out = grad.sum(axis=tuple(axes)).reshape(shape)
    grad[...] = 0  # "free" it
    return out
