"""Payloads as handlers ask for them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, Optional, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

from tidewheel.encoding import PayloadError, convert, cut_text, read_json, to_json, to_small_json
from tidewheel.times import read_duration, write_duration


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Inner:
    n: int


@dataclass
class Outer:
    inner: Inner
    many: list[Inner]
    at: datetime
    colour: Colour = Colour.RED
    maybe: Inner | None = None
    tags: dict[str, int] = field(default_factory=dict)


class Typed(TypedDict, total=False):
    a: int


class Model(BaseModel):
    to: str
    n: int = 3


AT = datetime(2030, 1, 1, tzinfo=timezone.utc)


def test_payloads_become_what_the_annotation_says() -> None:
    raw = {
        "inner": {"n": 1, "newer_field": True},
        "many": [{"n": 2}],
        "at": "2030-01-01T00:00:00Z",
        "maybe": {"n": 3},
        "tags": {"a": 1},
    }
    assert convert(raw, Outer) == Outer(Inner(1), [Inner(2)], AT, Colour.RED, Inner(3), {"a": 1})
    assert convert({"to": "x", "n": "4"}, Model) == Model(to="x", n=4)
    assert convert({"a": 1}, Typed) == {"a": 1}
    assert convert(3, float) == 3.0
    assert convert([1, "a"], tuple[int, str]) == (1, "a")
    assert convert(["x"], set[str]) == {"x"}
    assert convert("red", Colour) is Colour.RED
    assert convert("2030-01-01", date) == date(2030, 1, 1)
    assert convert("1.10", Decimal) == Decimal("1.10")
    assert convert(str(UUID(int=7)), UUID) == UUID(int=7)
    assert convert(None, Optional[int]) is None  # noqa: UP045
    assert convert("b", Literal["a", "b"]) == "b"
    assert convert({"x": [1]}, Any) == {"x": [1]}
    assert convert({"x": 1}, dict) == {"x": 1}


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        ({"inner": {"n": "x"}, "many": [], "at": "2030-01-01T00:00:00Z"}, Outer, "/inner/n: str where int"),
        ({"inner": {"n": 1}}, Outer, "at, many missing"),
        (True, int, "bool where int"),
        ([1], dict[str, int], "list where an object"),
        ({"a": "x"}, Typed, "/a: str where int"),
        ({}, Model, "to"),
        ("later", datetime, "str where a datetime"),
        ("blue", Colour, "one of"),
        ("c", Literal["a", "b"], "one of"),
        ("x", int | None, "str where int is wanted; nor"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(value: object, wanted: object, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        convert(value, wanted)


def test_values_are_written() -> None:
    assert to_json(Outer(Inner(1), [], AT)) == (
        b'{"inner":{"n":1},"many":[],"at":"2030-01-01T00:00:00.000Z","colour":"red","maybe":null,"tags":{}}'
    )
    assert to_json(Model(to="é")) == '{"to":"é","n":3}'.encode()
    with pytest.raises(TypeError):
        to_json(object())
    with pytest.raises(ValueError, match="JSON"):
        to_json(math.nan)


def test_integers_of_any_length_are_read() -> None:
    long = 10**5_000 + 7
    digits = b"1" + b"0" * 4_999 + b"7"
    assert read_json(b'[%s, -%s, 3, {"a": 1.5}]' % (digits, digits)) == [long, -long, 3, {"a": 1.5}]
    with pytest.raises(ValueError, match="Expecting"):
        read_json(b"[1, ")


def test_durations_survive_both_ways() -> None:
    assert read_duration("1d2h3m4s5ms") == timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)
    assert read_duration(1.5) == timedelta(seconds=1.5)
    for text, seconds in (
        ("PT90S", 90),
        ("pt1h30m", 5_400),
        ("P1DT2H", 93_600),
        ("P1W", 604_800),
        ("PT0.5S", 0.5),
        ("1w", 604_800),
        ("5min", 300),
        ("1.5h", 5_400),
        ("90", 90),
        (" 90s ", 90),
    ):
        assert read_duration(text) == timedelta(seconds=seconds), text
    assert write_duration(timedelta(minutes=1)) == 60.0
    assert write_duration("PT90S") == "PT90S"
    for text in ("soon", "", "P", "PT", "P1M", "PT1D", "5x", "5m1h", "5m5min", "1.0123456789s", "1.s"):
        with pytest.raises(ValueError, match="not a duration"):
            read_duration(text)


def test_texts_are_cut_between_characters_and_can_always_be_sent() -> None:
    assert cut_text("short", 100) == "short"
    assert cut_text("aé", 2) == "a"
    assert cut_text("é" * 10_000_000, 5) == "éé"
    assert cut_text("\ud800x", 100) == "\\ud800x"
    assert len(cut_text("\udc00" * 100, 50).encode()) == 50


def test_depth_is_that_of_the_value_not_of_its_texts() -> None:
    brackets = ['\\"[[[', "]" * 500, '"{' * 500]
    assert to_small_json(brackets) == to_json(brackets)
    with pytest.raises(ValueError, match="deeper than 128"):
        to_small_json(eval("[" * 64 + '{"a":' * 65 + "1" + "}" * 65 + "]" * 64))
    with pytest.raises(ValueError, match="8192 are kept"):
        to_small_json("x" * 10_000)
