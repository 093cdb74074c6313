"""What a file of winners must look like: every key known, every value of its kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from attngen.buckets import of_words

Check = Callable[[Any], str | None]


def hold(data: Any, schema: int, machine: dict[str, Any]) -> str | None:
    """Why the parsed content of a file is not one for a machine, in words; None where it is."""
    if not isinstance(data, dict):
        return f"got {type(data).__name__}, allowed is an object"
    for name, wanted in {"schema": schema, **machine}.items():
        if name in data and (data[name] != wanted or type(data[name]) is not type(wanted)):
            return f"{name}: got {data[name]!r}, this is {wanted!r}"
    return _file(data)


def _keys(checks: dict[str, Check]) -> Check:
    """An object that has exactly these keys, each with a value that passes its check."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f"got {type(value).__name__}, allowed is an object"
        if unknown := sorted(set(value) - set(checks)):
            return f"unknown key {unknown[0]!r}"
        if missing := [name for name in checks if name not in value]:
            return f"key {missing[0]!r} is missing"
        return _first((name, check(value[name])) for name, check in checks.items())

    return check


def _by_name(check_value: Check) -> Check:
    """An object of any keys whose values pass a check."""

    def check(value: Any) -> str | None:
        if not isinstance(value, dict):
            return f"got {type(value).__name__}, allowed is an object"
        return _first((name, check_value(item)) for name, item in value.items())

    return check


def _first(reasons: Iterable[tuple[str, str | None]]) -> str | None:
    return next((f"{name}: {reason}" for name, reason in reasons if reason), None)


def _word(value: Any) -> str | None:
    return None if isinstance(value, str) else f"got {value!r}, allowed is a string"


def _count(value: Any) -> str | None:
    return None if type(value) is int and value > 0 else f"got {value!r}, allowed is a count"


def _tiles(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(tile, str) for tile in value):
        return None
    return f"got {value!r}, allowed is a list of tiles"


def _microseconds(value: Any) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and value > 0:
        return None
    return f"got {value!r}, allowed are microseconds above 0"


def _buckets(value: Any) -> str | None:
    if reason := _by_name(_timing)(value):
        return reason
    return next((f"{words!r} is no bucket" for words in value if not of_words(words)), None)


_words_by_name = _by_name(_word)
_timing = _keys({"us": _by_name(_microseconds), "repeatable": _tiles})
_record = _keys({"verified": _tiles, "rejected": _words_by_name, "buckets": _buckets})
_file = _keys(
    {
        "schema": _count,
        "device": _word,
        "capability": _word,
        "shared_memory": _count,
        "triton": _word,
        "templates": _words_by_name,
        "specs": _by_name(_record),
    }
)
