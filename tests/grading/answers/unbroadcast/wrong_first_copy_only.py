# says: you keep one copy's gradient and drop the others'
# fails: added axes, stretched axes, both at once, good manners


def unbroadcast(grad, shape):
    while grad.ndim > len(shape):
        grad = grad[0]
    for axis, n in enumerate(shape):
        grad = grad.take(range(n), axis=axis)
    return grad
