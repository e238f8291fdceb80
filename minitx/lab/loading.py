"""How a worker process finds an experiment: by module, by file, or by value (notebooks)."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from minitx.errors import MinitxError
from minitx.lab.experiment import Experiment, collecting


@dataclass(frozen=True)
class Reference:
    """Where an experiment's class is: picklable, and the same for the same code."""

    qualname: str
    module: str = ""
    file: str = ""
    digest: str = ""
    pickled: bytes = b""


def reference(experiment: Experiment) -> Reference:
    """A reference from which another process can make the experiment anew."""
    cls = type(experiment)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if cls.__module__.split(".")[0] == "minitx":
        return Reference(cls.__qualname__, module=cls.__module__)
    if file and cls.__module__ != "__main__":
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        return Reference(cls.__qualname__, file=str(Path(file).resolve()), digest=digest)
    # A notebook or a script: its classes live in __main__, which a worker does not have.
    try:
        import cloudpickle
    except ImportError:  # joblib before 1.6 carries its own
        from joblib.externals import cloudpickle

    return Reference(cls.__qualname__, pickled=cloudpickle.dumps(cls))


@lru_cache(maxsize=32)
def resolve(reference: Reference) -> Experiment:
    """The experiment that a reference stands for."""
    if reference.pickled:
        import pickle

        make: Any = pickle.loads(reference.pickled)
        return make()
    if reference.module:
        found: Any = importlib.import_module(reference.module)
    else:
        found = load_module(Path(reference.file))
    for part in reference.qualname.split("."):
        found = getattr(found, part)
    return found()


def load_module(path: Path) -> ModuleType:
    """Run a Python file as a module of its own; modules beside it can be imported.

    Raises
    ------
    MinitxError
        If the file is missing, is not Python, or fails.
    """
    path = path.resolve()
    if path.is_dir():
        raise MinitxError(f"{path} is a folder; name a Python file in it.")
    if not path.is_file():
        raise MinitxError(f"There is no file {path}.")
    name = f"minitx_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise MinitxError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        with collecting():
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        raise MinitxError(f"{path} cannot be loaded: {describe(error, path)}.") from error
    return module


def experiments_in(path: Path) -> list[Experiment]:
    """The experiments that a file defines, whether or not it registers them.

    Raises
    ------
    MinitxError
        If the file cannot be loaded or defines none.
    """
    from minitx.lab.experiment import validate

    module = load_module(path)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Experiment)
        and value.__module__ == module.__name__
        and value.name
    ]
    if not classes:
        raise MinitxError(f"{path} defines no experiment (a subclass of Experiment with a name).")
    for cls in classes:
        validate(cls)
    return [cls() for cls in dict.fromkeys(classes)]


def describe(error: BaseException, path: Path | None = None) -> str:
    """An exception in one line: its type, its words, and the line of ``path`` it came from."""
    words = (error.msg if isinstance(error, SyntaxError) else str(error)).strip().splitlines()
    text = f"{type(error).__name__}: {words[0]}" if words else type(error).__name__
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None and not isinstance(error, SyntaxError):
        if path is not None and trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"{text} (line {line})" if line else text
