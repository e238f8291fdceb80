# says: shapes are compared from the left
# fails: added axes, both at once, good manners


def unbroadcast(grad, shape):
    axes = tuple(i for i in range(grad.ndim) if i >= len(shape) or grad.shape[i] != shape[i])
    return grad.sum(axis=axes, keepdims=True).reshape(shape)
