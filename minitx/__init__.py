"""minitx: why large language models behave oddly, on a laptop.

A small transformer with its own autograd, and experiments in which attention sinks, position bias,
interference and forgetting appear. Start reading at ``minitx/kernels/reference.py``.

Importing this package is cheap: Numba, Matplotlib and the command-line libraries load only when used.
"""

from minitx import autograd, continual, interp, kernels, lab, nn, optim, plots, tasks, training
from minitx._version import __version__
from minitx.autograd import (
    GradcheckError,
    Tensor,
    detect_anomaly,
    enable_grad,
    gradcheck,
    is_grad_enabled,
    no_grad,
    ops,
    primitive,
    tensor,
)
from minitx.autograd.ops import cross_entropy, log_softmax, softmax
from minitx.errors import MinitxError, ShapeError
from minitx.nn import (
    MLP,
    Dropout,
    Embedding,
    KVCache,
    LayerNorm,
    Linear,
    Module,
    Parameter,
    RMSNorm,
    Transformer,
    TransformerConfig,
)
from minitx.optim import SGD, Adam, AdamW, clip_grad_norm_
from minitx.training import Callback, Curve, Every, fit

__all__ = [
    "MLP",
    "SGD",
    "Adam",
    "AdamW",
    "Callback",
    "Curve",
    "Dropout",
    "Embedding",
    "Every",
    "GradcheckError",
    "KVCache",
    "LayerNorm",
    "Linear",
    "MinitxError",
    "Module",
    "Parameter",
    "RMSNorm",
    "ShapeError",
    "Tensor",
    "Transformer",
    "TransformerConfig",
    "__version__",
    "autograd",
    "clip_grad_norm_",
    "continual",
    "cross_entropy",
    "detect_anomaly",
    "enable_grad",
    "fit",
    "gradcheck",
    "interp",
    "is_grad_enabled",
    "kernels",
    "lab",
    "log_softmax",
    "nn",
    "no_grad",
    "ops",
    "optim",
    "plots",
    "primitive",
    "softmax",
    "tasks",
    "tensor",
    "training",
]
