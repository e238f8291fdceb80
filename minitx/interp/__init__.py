"""Look inside a model: head scores, probes, circuits, interventions, patching, attribution.

Import the file you need (``from minitx.interp import scores, patching``), or name it from the
package (``minitx.interp.scores``): a file is loaded when it is first named.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

_FILES = tuple(sorted(found.name for found in pkgutil.iter_modules(__path__)))


def __getattr__(name: str) -> ModuleType:
    """Load a file of this package at its first use: ``import minitx`` stays cheap."""
    if name in _FILES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_FILES})
