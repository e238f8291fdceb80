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
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import minitx
from minitx.lab.experiment import Experiment

PACKAGE = Path(minitx.__file__).resolve().parent
APART = {"lab", "plots", "report", "cli", "grading", "__main__"}


def code_version(experiment: Experiment) -> str:
    """Sixteen hexadecimal digits that change when code changes which the experiment uses."""
    cls = type(experiment)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if file and cls.__module__ != "__main__":
        files = reached(Path(file).resolve())
        own = b""
    else:
        files = reached(PACKAGE / "__init__.py")
        own = _notebook_source(cls)
    digest = hashlib.sha256(own)
    for path in sorted(files):
        digest.update(f"{_label(path)} {_parsed(path)[0]}\n".encode())
    return digest.hexdigest()[:16]


def reached(start: Path) -> set[Path]:
    """The files that ``start`` reaches through imports, itself included."""
    seen: set[Path] = set()
    todo = [start]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for parts in _parsed(path)[1]:
            todo.extend(_locate(parts, start.parent))
    return seen


def _label(path: Path) -> str:
    """A name for the file that does not hang on where the package lies."""
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name


def _locate(parts: tuple[str, ...], beside: Path) -> Iterator[Path]:
    """Files that importing this dotted name runs: the module and the packages around it."""
    if parts[0] == "minitx":
        if len(parts) > 1 and parts[1] in APART:
            return
        root = PACKAGE.parent
    elif beside.is_relative_to(PACKAGE):
        return  # from outside the package: its version is not ours to watch
    else:
        root = beside  # a module beside the user's file
    for count in range(1, len(parts) + 1):
        base = root.joinpath(*parts[:count])
        for candidate in (base / "__init__.py", base.with_suffix(".py")):
            if candidate.is_file():
                yield candidate
                break


def _parsed(path: Path) -> tuple[str, frozenset[tuple[str, ...]]]:
    """A digest of the file's code, and the dotted names that it imports."""
    stat = path.stat()
    return _parse(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _parse(path: Path, mtime: int, size: int) -> tuple[str, frozenset[tuple[str, ...]]]:
    source = path.read_bytes()
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return hashlib.sha256(source).hexdigest(), frozenset()
    names = frozenset(_imports(tree, _package_of(path)))
    return hashlib.sha256(repr(_canonical(tree)).encode()).hexdigest(), names


def _package_of(path: Path) -> tuple[str, ...]:
    """The package that relative imports in this file start from."""
    if path.is_relative_to(PACKAGE):
        return ("minitx", *path.relative_to(PACKAGE).parent.parts)
    return ()


def _imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Dotted names of all import statements, wherever they stand in the file."""
    lazy = any(isinstance(n, ast.FunctionDef) and n.name == "__getattr__" for n in tree.body)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:  # a name may be a module of the package
                yield (*base, alias.name)
        elif lazy and isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A package that imports on demand keeps the modules' names in strings.
            parts = tuple(node.value.lstrip(".").split("."))
            if all(part.isidentifier() for part in parts):
                yield parts if parts[0] == "minitx" else (*package, *parts)


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


def _notebook_source(cls: type) -> bytes:
    """Source of a class from a notebook, and of what it uses by name from other cells."""
    module = sys.modules.get(cls.__module__)
    texts: dict[str, str] = {}
    todo = [(cls.__name__, cls)]
    while todo:
        name, value = todo.pop()
        if name in texts:
            continue
        try:
            texts[name] = inspect.getsource(value)
        except (OSError, TypeError):
            texts[name] = repr(value)  # a plain value, such as a number
            continue
        for node in ast.walk(ast.parse(inspect.cleandoc(texts[name]))):
            if isinstance(node, ast.Name) and hasattr(module, node.id):
                used = getattr(module, node.id)
                if not inspect.ismodule(used):
                    todo.append((node.id, used))
    return repr(sorted(texts.items())).encode()
