"""Exercise 1 of 6: undo broadcasting in a gradient (10 points).

NumPy stretches a small array to fit a large one: it adds axes in front and repeats axes of size 1.
``x + bias`` with ``x`` of shape (5, 3) and ``bias`` of shape (3,) uses each entry of ``bias`` five
times. The gradient that comes back has the large shape, (5, 3). What is the gradient of ``bias``?

Each use passes back its own gradient, and the chain rule adds them up: the gradient of an entry
that was used n times is the *sum* over its n copies.

Check your work with:  minitx grade unbroadcast unbroadcast.py
"""

import numpy as np


def unbroadcast(grad: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Sum ``grad`` down to ``shape``, the shape that the array had before it was broadcast.

    Parameters
    ----------
    grad : array
        The gradient of the broadcast array. ``shape`` broadcasts to ``grad.shape``.
    shape : tuple of int
        The shape wanted.

    Returns
    -------
    array of shape ``shape``, with the dtype of ``grad``. ``grad`` itself is not changed.

    Examples
    --------
    >>> unbroadcast(np.ones((5, 3)), (3,))          # an axis was added in front
    array([5., 5., 5.])
    >>> unbroadcast(np.ones((2, 4, 3)), (2, 1, 3))  # an axis of size 1 was stretched
    array([[[4., 4., 4.]],
    <BLANKLINE>
           [[4., 4., 4.]]])
    """
    raise NotImplementedError
