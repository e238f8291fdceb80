# says: sum them with keepdims=True
# fails: stretched axes, both at once, good manners


def unbroadcast(grad, shape):
    extra = grad.ndim - len(shape)
    axes = [
        i for i in range(grad.ndim) if i < extra or (shape[i - extra] == 1 and grad.shape[i] > 1)
    ]
    return grad.sum(axis=tuple(axes))
