"""Exercise 2 of 6: the gradient of softmax (10 points).

``y = softmax(x)`` along the last axis: ``y_i = exp(x_i) / sum_j exp(x_j)``. Raising one score
raises its own weight and lowers all others of its row:

    dy_i / dx_j = y_i (1 - y_i)  if i == j
                = -y_i y_j       otherwise

Backward gets ``g``, the gradient of the loss for ``y``, and returns the gradient for ``x``:

    gx_j = sum_i g_i dy_i/dx_j

Put the two together; what is left is short, and needs ``y`` but not ``x``. The Jacobian never
has to be built.

Check your work with:  minitx grade softmax_backward softmax_backward.py
"""

import numpy as np


def softmax_backward(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of the loss for the scores, given that for the weights.

    Parameters
    ----------
    g : array [..., V]
        Gradient for ``y``.
    y : array [..., V]
        The softmax's output. Entries can be exactly 0 (masked keys), and so can a whole row.

    Returns
    -------
    array [..., V], with the inputs' dtype. The inputs are not changed.

    Examples
    --------
    >>> softmax_backward(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    array([ 0.25, -0.25])
    >>> softmax_backward(np.array([[3.0, 3.0], [2.0, 0.0]]), np.array([[0.9, 0.1], [0.75, 0.25]]))
    array([[ 0.   ,  0.   ],
           [ 0.375, -0.375]])
    """
    raise NotImplementedError
