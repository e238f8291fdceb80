"""Which kernels are active, the NumPy ones or the compiled ones: the one place that decides.

``kernels.softmax(x)`` runs ``compiled.softmax`` if Numba is installed and ``reference.softmax`` if
not. ``MINITX_KERNELS=numpy`` (or ``numba``) in the environment decides before the first call,
`use` at any time. Nothing is imported until a kernel is first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os

from minitx.errors import MinitxError, choose
from minitx.kernels.threads import get_threads, set_threads

KERNELS = (
    *("softmax", "softmax_backward", "log_softmax", "log_softmax_backward"),
    *("cross_entropy", "cross_entropy_backward", "layer_norm", "layer_norm_backward"),
    *("rms_norm", "rms_norm_backward", "gelu", "gelu_backward", "silu", "silu_backward"),
    *("linear", "linear_backward", "attention", "attention_backward", "rotary"),
    *("mlp_block", "mlp_block_backward", "attention_block", "attention_block_backward"),
    *("embedding_backward", "adamw"),
)
OF_MLPS = tuple(name for name in KERNELS if name.startswith(("mlp_block", "gelu", "silu")))
_MODULES = {
    "numpy": ("minitx.kernels.reference", "minitx.kernels.reference_blocks"),
    "numba": ("minitx.kernels.compiled",),
}
_active: str | None = None

__all__ = [*KERNELS, "active", "get_threads", "set_threads", "use", "warm_up"]


def active() -> str:
    """The kernels in use: ``"numpy"`` or ``"numba"``."""
    if _active is None:
        asked = os.environ.get("MINITX_KERNELS", "").strip().lower()
        if asked in ("", "auto"):
            asked = "numba" if importlib.util.find_spec("numba") else "numpy"
        use(asked)
    return _active


def use(name: str) -> None:
    """Switch to the kernels ``name``, ``"numpy"`` or ``"numba"``, for every later call.

    Raises
    ------
    MinitxError
        If the name is unknown, or Numba was asked for and cannot be imported.
    """
    global _active
    paths = choose(_MODULES, name, "kernels")
    try:
        importlib.import_module(paths[0])
    except ImportError as error:
        raise MinitxError(
            f"The compiled kernels need Numba, which cannot be imported ({error}); install it with "
            f"`pip install numba`, or set MINITX_KERNELS=numpy to run without it."
        ) from error
    _active = name
    for kernel in KERNELS:  # forget the earlier choice; __getattr__ looks them up again
        globals().pop(kernel, None)


def warm_up(progress=None, without: tuple[str, ...] = ()) -> None:
    """Compile every kernel now rather than on its first call. Silent if all are in the disk cache.

    Parameters
    ----------
    progress : callable(done: int, total: int, name: str), optional
        Called before each kernel. By default a line on standard error, once something really
        has to be compiled.
    without : tuple of str
        Kernels that will not be needed, such as `OF_MLPS`.
    """
    if active() == "numba":
        importlib.import_module("minitx.kernels.compile_ahead").warm_up(progress, without)


def __getattr__(name: str):
    if name not in KERNELS:
        raise AttributeError(f"module 'minitx.kernels' has no attribute {name!r}")
    modules = map(importlib.import_module, _MODULES[active()])
    function = next(getattr(module, name) for module in modules if hasattr(module, name))
    globals()[name] = function  # the next look-up costs nothing
    return function
