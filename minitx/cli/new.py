"""``minitx new``: a file to start an experiment from."""

from __future__ import annotations

import keyword
import sys
from importlib.resources import files
from pathlib import Path

from minitx import phenomena
from minitx.errors import MinitxError
from minitx.lab.experiment import NAME

TEMPLATE = files("minitx.cli") / "templates" / "experiment.py.txt"
IN_USE = {"minitx", "numpy", "numba", "matplotlib", "rich", "typer", "joblib"}  # we import these


def write_experiment(name: str, folder: Path | None = None) -> Path:
    """Write a runnable experiment to ``NAME.py`` and return its path.

    Parameters
    ----------
    name : str
        ``FAMILY.NAME``: two identifiers in lower case.
    folder : Path, optional
        Where to; default the current folder.

    Raises
    ------
    MinitxError
        If the name will not do, the file exists, or it cannot be written.
    """
    check_name(name)
    short = name.split(".")[1]
    path = (folder or Path()) / f"{short}.py"
    text = TEMPLATE.read_text(encoding="utf-8").format(
        name=name, file=path.name, cls="".join(part.capitalize() for part in short.split("_"))
    )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise MinitxError(
            f"{path} exists already and is kept; choose another name or move it away."
        ) from None
    except OSError as error:
        raise MinitxError(
            f"Cannot write {path}: {error.strerror or error}; go to a folder of yours."
        ) from None
    return path


def check_name(name: str) -> None:
    """Raise a `MinitxError` unless the name can be an experiment's and its file's."""
    parts = name.split(".")
    if not NAME.fullmatch(name) or not all(part.isidentifier() for part in parts):
        raise MinitxError(
            f"An experiment is named FAMILY.NAME, two words of lower-case letters, digits and _ "
            f"that begin with a letter, such as sinks.mine; got {name!r}."
        )
    for part in parts:
        if keyword.iskeyword(part):
            raise MinitxError(f"{part!r} is a word of Python itself; choose another than {name!r}.")
    short = parts[1]
    if short in sys.stdlib_module_names or short in IN_USE:
        raise MinitxError(
            f"A file {short}.py would hide the module {short!r} that Python or minitx imports; "
            f"choose another name than {name!r}."
        )
    if not short.strip("_"):
        raise MinitxError(f"NAME needs a letter, got {name!r}; such as {parts[0]}.mine.")
    if f"{phenomena.__name__}.{name}" in phenomena.modules():
        raise MinitxError(
            f"minitx has an experiment {name} of its own; choose another name, such as {name}_mine."
        )
