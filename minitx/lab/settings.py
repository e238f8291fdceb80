"""Settings are frozen dataclasses; ``--set key=value`` parses a value by its field's type."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from minitx.errors import MinitxError, unknown

TRUE, FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def check_keys(cls: type, keys: Iterable[str], where: str) -> None:
    """Raise a `MinitxError` that names the nearest fields if a key is not a field of ``cls``."""
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    for key in keys:
        if key not in known:
            raise unknown(f"{where} setting", key, known)


def fields_of(settings: Any) -> dict[str, Any]:
    """The fields from which the settings can be made again: ``type(settings)(**fields)``."""
    fields = dataclasses.fields(settings)
    return {field.name: getattr(settings, field.name) for field in fields if field.init}


def replace(settings: Any, changes: Mapping[str, Any], where: str) -> Any:
    """``dataclasses.replace`` whose errors say which experiment and what was given."""
    check_keys(type(settings), changes, where)
    try:
        return dataclasses.replace(settings, **changes)
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in changes.items())
        raise MinitxError(f"{where} cannot be run with {given}: {error}") from error


def split_assignment(text: str) -> tuple[str, str]:
    """``"key=value"`` as a pair.

    Raises
    ------
    MinitxError
        If there is no ``=``, or no key before it.
    """
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise MinitxError(f"--set takes key=value, got {text!r}; for example --set steps=200.")
    return key, value.strip()


def parse_overrides(cls: type, overrides: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Values for fields of a dataclass; strings are parsed by the field's type.

    Raises
    ------
    MinitxError
        For an unknown field or a value that does not fit.
    """
    check_keys(cls, overrides, where)
    try:
        hints = typing.get_type_hints(cls)
    except Exception:  # an annotation that cannot be resolved: go by the default's type
        hints = {}
    parsed = {}
    for field in dataclasses.fields(cls):
        if field.name not in overrides:
            continue
        value = overrides[field.name]
        hint = hints.get(field.name) or type(field.default)
        if isinstance(value, str):
            try:
                value = parse_value(value, hint)
            except ValueError as error:
                raise MinitxError(
                    f"{field.name!r} of {where} takes {error}, got {overrides[field.name]!r}."
                ) from None
        parsed[field.name] = value
    return parsed


def parse_value(text: str, hint: Any) -> Any:
    """A string as that type: int, float, bool, str, None, Literal, tuples, unions of these.

    Raises
    ------
    ValueError
        Whose message says, in words, what was expected.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _parse_union(text, args)
    if origin is typing.Literal:
        for choice in args:
            if str(choice) == text:
                return choice
        raise ValueError("one of " + ", ".join(repr(choice) for choice in args))
    if origin in (tuple, list) or hint in (tuple, list):
        return _parse_sequence(text, origin or hint, args)
    if hint is bool:
        if text.lower() in TRUE | FALSE:
            return text.lower() in TRUE
        raise ValueError("true or false")
    if hint is int:
        return _parse_int(text)
    if hint is float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("a number") from None
        if not math.isfinite(value):
            raise ValueError("a finite number")
        return value
    if hint is type(None):
        if text.lower() in {"none", "null"}:
            return None
        raise ValueError("none")
    if hint is str or hint is Any:
        return text
    raise ValueError(f"{getattr(hint, '__name__', hint)}, which cannot be given as text")


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)  # 1e3 is a whole number too
    except ValueError:
        raise ValueError("a whole number") from None
    if not value.is_integer():  # also refuses inf and nan
        raise ValueError("a whole number")
    return int(value)


def _parse_union(text: str, kinds: tuple) -> Any:
    wanted = []
    # None first and str last: whatever else can read the text has the better claim to it.
    for kind in sorted(kinds, key=lambda kind: (kind is str, kind is not type(None))):
        try:
            return parse_value(text, kind)
        except ValueError as error:
            wanted.append(str(error))
    raise ValueError(" or ".join(reversed(wanted)))


def _parse_sequence(text: str, kind: type, args: tuple) -> Any:
    items = [item.strip() for item in text.strip("()[] ").split(",") if item.strip()]
    if kind is tuple and args and Ellipsis not in args:
        if len(items) != len(args):
            raise ValueError(f"{len(args)} values with commas between")
        return tuple(parse_value(item, hint) for item, hint in zip(items, args, strict=True))
    hint = args[0] if args else str
    try:
        return kind(parse_value(item, hint) for item in items)
    except ValueError as error:
        raise ValueError(f"values with commas between, each {error}") from None
