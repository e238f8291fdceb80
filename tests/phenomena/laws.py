"""Which laws are tested of which experiment: tests with ``@pytest.mark.law("family.name")``.

A law is what must hold whatever the numbers are: a property test over drawn cases, with Hypothesis.
One that is skipped or expected to fail is none.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

HERE = Path(__file__).parent


def test_modules() -> Iterator[ModuleType]:
    """Every file of tests in this folder, as pytest names it."""
    for path in sorted(HERE.rglob("test_*.py")):
        parts = path.relative_to(HERE).with_suffix("").parts
        yield importlib.import_module(".".join(("tests", "phenomena", *parts)))


def laws(modules: Iterable[ModuleType]) -> dict[str, list[str]]:
    """The names of the tests by the experiment whose law they are."""
    found = defaultdict(list)
    for module in modules:
        for name, test in vars(module).items():
            if not (name.startswith("test_") and isinstance(test, FunctionType)):
                continue
            marks = getattr(test, "pytestmark", [])
            if {"skip", "skipif", "xfail"} & {mark.name for mark in marks}:
                continue
            for mark in marks:
                if mark.name == "law" and getattr(test, "is_hypothesis_test", False):
                    for experiment in mark.args:
                        found[experiment].append(name)
    return dict(found)
