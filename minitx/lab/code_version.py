"""Which code made a result: a hash over the experiment and all it imports of its own package.

A stored result counts only for the code that made it. Files are followed through their import
statements; comments, docstrings and layout do not count, nor do the rooms that cannot move a number
(lab, plots, report, cli, grading), so that a restyled figure trains nothing anew.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from minitx.lab.experiment import Experiment

PACKAGE = Path(__file__).resolve().parents[1]
Dotted = tuple[str, ...]  # ("minitx", "nn", "layers")
DISCOVERY = PACKAGE / "phenomena" / "__init__.py"  # finds experiments, computes nothing
APART = {"lab", "plots", "report", "cli", "grading", "__main__"}


def code_version(experiment: Experiment) -> str:
    """Sixteen hexadecimal digits that change when code changes which the experiment uses."""
    cls = type(experiment)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if file:
        files, own = reached(Path(file).resolve()), b""
    else:  # a notebook: no file to follow, so the whole package counts
        files, own = reached(PACKAGE / "__init__.py"), _fingerprint(cls)
    digest = hashlib.sha256(own)
    for path in sorted(files):
        digest.update(f"{_label(path)} {_parsed(path).digest}\n".encode())
    return digest.hexdigest()[:16]


def reached(start: Path) -> set[Path]:
    """The files whose code ``start`` uses through imports, itself included."""
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path in seen or path == DISCOVERY:
            continue
        seen.add(path)
        for module, name in _parsed(path).imports:
            todo.extend(_follow(module, name, start.parent))
    return seen


def _label(path: Path) -> str:
    """A name for the file that does not hang on where the package lies."""
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name


def _follow(module: Dotted, name: str | None, beside: Path) -> Iterator[Path]:
    """The files behind ``import module`` or ``from module import name``.

    A package whose ``__init__`` only gathers names from its modules is looked through: who takes
    one name from it does not hang on the others.
    """
    full = module if name is None else (*module, name)
    if full[0] == "minitx" and len(full) > 1 and full[1] in APART:
        return
    for count in range(1, len(module)):
        around = _locate(module[:count], beside)
        if around and not _parsed(around).gathers:
            yield around  # runs before the module, and does more than gather names
    file = _locate(module, beside)
    if name is not None and (inner := _locate((*module, name), beside)):
        if file and not _parsed(file).gathers:
            yield file
        yield inner
    elif file and name and _parsed(file).gathers.get(name, (module, name)) != (module, name):
        yield from _follow(*_parsed(file).gathers[name], beside)
    elif file:
        yield file


def _locate(module: Dotted, beside: Path) -> Path | None:
    """The file of a module of ours (or beside the user's file); None for all others."""
    if module[0] == "minitx":
        root = PACKAGE.parent
    elif beside.is_relative_to(PACKAGE):
        return None  # from outside the package: its version is not ours to watch
    else:
        root = beside
    base = root.joinpath(*module)
    candidates = (base / "__init__.py", base.parent / f"{base.name}.py")
    return next((path for path in candidates if path.is_file()), None)


@dataclass(frozen=True)
class Parsed:
    """What the walk needs to know of a file.

    ``gathers`` maps the names that a package's ``__init__`` takes from its modules to where they
    come from; it is empty if the file holds any code of its own.
    """

    digest: str
    imports: tuple[tuple[Dotted, str | None], ...]
    gathers: Mapping[str, tuple[Dotted, str | None]]


def _parsed(path: Path) -> Parsed:
    stat = path.stat()
    return _parse(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _parse(path: Path, mtime: int, size: int) -> Parsed:
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return Parsed(hashlib.sha256(source).hexdigest(), (), {})
    package = _package_of(path)
    digest = hashlib.sha256(repr(_canonical(tree)).encode()).hexdigest()
    gathers = {}
    if path.name == "__init__.py" and all(map(_only_gathers, tree.body)):
        for node in tree.body:
            gathers.update({bound: (m, n) for m, n, bound in _imports(node, package)})
    nodes = [entry[:2] for node in ast.walk(tree) for entry in _imports(node, package)]
    lazy = any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in tree.body)
    nodes += _names_in_strings(tree, package) if lazy else []
    return Parsed(digest, tuple(dict.fromkeys(nodes)), gathers)


def _only_gathers(node: ast.stmt) -> bool:
    """True for a docstring, an import, and an assignment to a name like ``__all__``."""
    if isinstance(node, ast.Assign):
        return all(isinstance(t, ast.Name) and t.id.startswith("__") for t in node.targets)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.Import | ast.ImportFrom)


def _package_of(path: Path) -> tuple[str, ...]:
    """The package that relative imports in this file start from."""
    if path.is_relative_to(PACKAGE):
        return ("minitx", *path.relative_to(PACKAGE).parent.parts)
    return ()


def _imports(node: ast.AST, package: Dotted) -> Iterator[tuple[Dotted, str | None, str]]:
    """(module, name taken from it or None, name bound here) of an import statement."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield tuple(alias.name.split(".")), None, alias.asname or alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        base += tuple(node.module.split(".")) if node.module else ()
        for alias in node.names:
            if base:
                yield base, None if alias.name == "*" else alias.name, alias.asname or alias.name
            else:  # `from . import x` beside a user's file
                yield (alias.name,), None, alias.asname or alias.name


def _names_in_strings(tree: ast.Module, package: Dotted) -> list[tuple[Dotted, None]]:
    """What may be names of modules: a package that imports on demand keeps them in strings."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = tuple(node.value.lstrip(".").split("."))
            if all(part.isidentifier() for part in parts):
                found.append((parts if parts[0] == "minitx" else (*package, *parts), None))
    return found


def _canonical(node: Any) -> Any:
    """The syntax tree without positions, docstrings and empty fields: equal for equal code."""
    if isinstance(node, list):
        return [_canonical(item) for item in node]
    if not isinstance(node, ast.AST):
        return node
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            first = value[0] if value else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                value = value[1:] if isinstance(first.value.value, str) else value
        if value is not None and value != []:
            fields.append((name, _canonical(value)))
    return type(node).__name__, fields


def _fingerprint(cls: type) -> bytes:
    """What a class from a notebook is made of, and what it uses by name from other cells.

    Source text cannot be had for all of it, compiled code can.
    """
    seen: dict[str, Any] = {}
    todo: list[tuple[str, Any]] = [(cls.__qualname__, cls)]
    while todo:
        name, value = todo.pop()
        if name in seen or inspect.ismodule(value):
            continue
        value = getattr(value, "__func__", value)  # of a classmethod or staticmethod
        if getattr(value, "__module__", cls.__module__) != cls.__module__:
            seen[name] = "imported"
        elif isinstance(value, type):
            seen[name] = [base.__qualname__ for base in value.__mro__]
            members = {k: v for k, v in vars(value).items() if not k.startswith("__")}
            todo += [(f"{name}.{key}", member) for key, member in members.items()]
            todo += [(base.__qualname__, base) for base in value.__bases__]
        elif inspect.isfunction(value):
            seen[name] = (_code(value.__code__), repr(value.__defaults__))
            names = [n for n in _names(value.__code__) if n in value.__globals__]
            todo += [(n, value.__globals__[n]) for n in names]
        else:
            seen[name] = repr(value)
    return repr(sorted(seen.items())).encode()


def _code(code: CodeType) -> tuple:
    consts = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code.hex(), consts, code.co_names


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)
