"""The experiments themselves: one file each, under sinks/, position/, interference/, forgetting/.

Importing this package imports none of them; `load` and `load_all` do.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

from minitx.errors import unknown
from minitx.lab.experiment import Experiment, registry

HERE = Path(__file__).resolve().parent


def modules() -> list[str]:
    """Dotted names of the experiments' modules, sorted; a leading underscore marks a helper."""
    files = [
        path.relative_to(HERE).with_suffix("") for path in HERE.glob("*/*.py") if path.is_file()
    ]
    return sorted(
        ".".join((__name__, *file.parts))
        for file in files
        if not any(part.startswith(("_", ".")) for part in file.parts)
    )


def load_all() -> dict[str, Exception]:
    """Import every experiment. Returns what went wrong by module: one broken file hides no other."""
    broken = {}
    for name in modules():
        try:
            importlib.import_module(name)
        except Exception as error:
            broken[name] = error
    return broken


def load(name: str) -> Experiment:
    """The experiment of that name, importing its module only where the file is named like it.

    Raises
    ------
    MinitxError
        If there is none; the nearest names are suggested.
    """
    module = f"{__name__}.{name}"
    if name not in registry and module in modules():
        importlib.import_module(module)
    if name not in registry:
        load_all()
    if name not in registry:
        raise unknown("experiment", name, registry)
    return registry[name]()
