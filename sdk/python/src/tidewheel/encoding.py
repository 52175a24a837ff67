"""JSON both ways: what programs hold as the bytes of a payload, and a payload as the type a handler asks for."""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Union
from uuid import UUID

from . import limits
from .times import read_time, write_time


class PayloadError(ValueError):
    """A payload is not what the handler asks for. Trying again cannot help."""


# Python reads integers of so many digits whatever it is told about longer ones.
_DIGITS_AT_ONCE = 600


def read_json(raw: bytes) -> Any:
    """Reads JSON, with integers of any length: a payload may hold such, and Python refuses those of over 4,300 digits.

    Raises:
        ValueError: if it is not JSON.
    """
    try:
        return json.loads(raw)
    except ValueError:
        # Whatever else is wrong is wrong again.
        return json.loads(raw, parse_int=_read_int)


def _read_int(text: str) -> int:
    digits = text.removeprefix("-")
    number = 0
    for start in range(0, len(digits), _DIGITS_AT_ONCE):
        part = digits[start : start + _DIGITS_AT_ONCE]
        number = number * 10 ** len(part) + int(part)
    return -number if text.startswith("-") else number


def to_json(value: object) -> bytes:
    """Writes a value as JSON: plain ones, dataclasses, pydantic models, enums, times, UUIDs.

    Raises:
        TypeError: if it holds something else.
        ValueError: if it holds what JSON cannot: NaN, half a character, itself.
    """
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def to_small_json(value: object) -> bytes:
    """Writes a value as JSON that is kept with a job: a result, or a report of progress.

    Raises:
        TypeError: if it is not JSON.
        ValueError: if it is too large or nests too deep, or holds what JSON cannot.
    """
    try:
        text = to_json(value)
    except RecursionError as error:
        raise ValueError(f"it nests deeper than {limits.RESULT_DEPTH_MAX} levels") from error
    if len(text) > limits.RESULT_BYTES_MAX:
        raise ValueError(f"it has {len(text)} bytes; at most {limits.RESULT_BYTES_MAX} are kept")
    if _depth(text) > limits.RESULT_DEPTH_MAX:
        raise ValueError(f"it nests deeper than {limits.RESULT_DEPTH_MAX} levels")
    return text


_TEXT_IN_JSON = re.compile(rb'"(?:[^"\\]|\\.)*"')


def _depth(text: bytes) -> int:
    """How deep JSON nests, without walking down it."""
    depth = deepest = 0
    for byte in _TEXT_IN_JSON.sub(b"", text):
        if byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def cut_text(text: str, bytes_max: int) -> str:
    """The beginning of a text, in so many bytes of UTF-8. Half characters, which have none, are written as escapes."""
    # No character is shorter than a byte: what comes after so many cannot be part of it.
    raw = text[:bytes_max].encode("utf-8", "backslashreplace")[:bytes_max]
    return raw.decode("utf-8", "ignore")


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    if isinstance(value, datetime):
        return write_time(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def convert(value: Any, wanted: Any) -> Any:
    """Turns parsed JSON into the type an annotation names.

    Knows plain types, `list`, `dict`, `tuple` and `set` of them, unions, `Literal`, dataclasses, `TypedDict`, pydantic
    models, enums, `datetime`, `date`, `UUID` and `Decimal`. Fields a dataclass does not have are left out, so that
    submitters can be updated before workers.

    Raises:
        PayloadError: saying where the value does not fit.
    """
    return _convert(value, wanted, "")


# `Required` and `NotRequired` came with Python 3.11.
_WRAPPERS = (typing.Annotated, getattr(typing, "Required", None), getattr(typing, "NotRequired", None))


def _convert(value: Any, wanted: Any, at: str) -> Any:
    if wanted in (Any, object):
        return value
    if wanted is None or wanted is type(None):
        return value if value is None else _refuse(value, "null", at)
    origin = typing.get_origin(wanted)
    if origin is not None and origin in _WRAPPERS:
        return _convert(value, typing.get_args(wanted)[0], at)
    if origin in (Union, types.UnionType):
        return _convert_union(value, typing.get_args(wanted), at)
    if origin is typing.Literal:
        choices = typing.get_args(wanted)
        return value if value in choices else _refuse(value, f"one of {list(choices)}", at)
    if origin is not None:
        return _convert_many(value, origin, typing.get_args(wanted), at)
    return _convert_one(value, wanted, at)


def _convert_union(value: Any, choices: tuple[Any, ...], at: str) -> Any:
    faults = []
    for choice in choices:
        try:
            return _convert(value, choice, at)
        except PayloadError as fault:
            faults.append(str(fault))
    raise PayloadError("; nor ".join(faults))


def _convert_many(value: Any, origin: Any, args: tuple[Any, ...], at: str) -> Any:
    if issubclass(origin, Mapping):
        if not isinstance(value, dict):
            return _refuse(value, "an object", at)
        inner = args[1] if len(args) > 1 else Any
        return {key: _convert(item, inner, f"{at}/{key}") for key, item in value.items()}
    if not isinstance(value, list):
        return _refuse(value, "an array", at)
    if origin is tuple and args and args[-1] is not Ellipsis:
        if len(args) != len(value):
            return _refuse(value, f"an array of {len(args)}", at)
        return tuple(_convert(item, want, f"{at}/{i}") for i, (item, want) in enumerate(zip(value, args, strict=True)))
    inner = args[0] if args else Any
    items = [_convert(item, inner, f"{at}/{i}") for i, item in enumerate(value)]
    return origin(items) if origin in (tuple, set, frozenset) else items


_TEXTS: dict[Any, Callable[[str], Any]] = {
    datetime: read_time,
    date: date.fromisoformat,
    UUID: UUID,
    Decimal: Decimal,
}


def _convert_one(value: Any, wanted: Any, at: str) -> Any:
    if typing.is_typeddict(wanted):
        return _convert_fields(value, wanted, wanted.__required_keys__, at)
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        needed = [
            field.name
            for field in dataclasses.fields(wanted)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        known = {field.name for field in dataclasses.fields(wanted) if field.init}
        fields = _convert_fields(value, wanted, needed, at)
        return wanted(**{name: item for name, item in fields.items() if name in known})
    validate = getattr(wanted, "model_validate", None)
    if callable(validate):
        try:
            return validate(value)
        except ValueError as error:
            raise PayloadError(str(error)) from error
    if wanted in _TEXTS and isinstance(value, (str, int, float)):
        try:
            return _TEXTS[wanted](str(value))
        except (ValueError, ArithmeticError):
            return _refuse(value, f"a {wanted.__name__}", at)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        try:
            return wanted(value)
        except ValueError:
            return _refuse(value, f"one of {[member.value for member in wanted]}", at)
    return _convert_plain(value, wanted, at)


def _convert_plain(value: Any, wanted: Any, at: str) -> Any:
    if not isinstance(wanted, type):
        raise PayloadError(f"a payload cannot be converted to {wanted!r}")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, bool) and wanted is not bool:
        return _refuse(value, wanted.__name__, at)
    if issubclass(wanted, tuple) and isinstance(value, list):
        return tuple(value)
    return value if isinstance(value, wanted) else _refuse(value, wanted.__name__, at)


def _convert_fields(value: Any, wanted: Any, needed: typing.Iterable[str], at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(value, "an object", at)
    missing = sorted(set(needed) - set(value))
    if missing:
        raise PayloadError(f"{at or '/'}: {', '.join(missing)} missing")
    hints = typing.get_type_hints(wanted)
    return {
        name: _convert(item, hints[name], f"{at}/{name}") if name in hints else item for name, item in value.items()
    }


def _refuse(value: Any, wanted: str, at: str) -> Any:
    raise PayloadError(f"{at or '/'}: {type(value).__name__} where {wanted} is wanted")
