"""minitx: why large language models behave oddly, on a laptop.

A small transformer with its own autograd, and experiments in which attention sinks, position bias,
interference and forgetting appear. Start reading at ``minitx/kernels/reference.py``.

Importing this package is cheap: Numba, Matplotlib and the command-line libraries load only when used.
"""

from minitx.errors import MinitxError, ShapeError

__version__ = "0.1.0"
__all__ = ["MinitxError", "ShapeError", "__version__"]
