"""Errors that a user can act on: what came, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class MinitxError(ValueError):
    """A mistake of the caller's, told in one sentence. The command line prints it without a traceback."""


class ShapeError(MinitxError):
    """Arrays whose shapes do not fit together; the message restates them."""


def unknown(kind: str, given: object, known: Iterable[str]) -> MinitxError:
    """The error for a name that is not in a table: the nearest name and all the known ones."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given), names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return MinitxError(f"Unknown {kind} {given!r}.{hint} Known: {', '.join(names)}.")


def choose(table: Mapping[str, T], name: str, kind: str) -> T:
    """``table[name]``, or an error that lists the known names.

    Raises
    ------
    MinitxError
        If ``name`` is not a key of ``table``.
    """
    try:
        return table[name]
    except (KeyError, TypeError):
        raise unknown(kind, name, table) from None
