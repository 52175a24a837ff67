"""Times and durations, as Python has them and as the server reads and writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

Duration = timedelta | float | int | str
"""A `timedelta`, a number of seconds, or a text the server reads, such as `"90s"`, `"1h30m"` or `"PT90S"`."""

Time = datetime | str
"""An aware `datetime`, or an RFC 3339 text."""

_UNITS_S = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"([0-9]+(?:\.[0-9]{1,9})?)"
_PLAIN = re.compile(_NUMBER)
_PART = re.compile(_NUMBER + r"(ms|min|w|d|h|m|s)")
_ISO = re.compile(
    rf"P(?=.)(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.IGNORECASE
)


def write_time(time: Time) -> str:
    """Writes a time for the server.

    Raises:
        ValueError: if the `datetime` has no time zone: a naive one means different instants on different machines.
    """
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError(f"{time!r} has no time zone; use datetime.now(timezone.utc) or zoneinfo")
    utc = time.astimezone(timezone.utc)
    return utc.strftime("%Y-%m-%dT%H:%M:%S.") + f"{utc.microsecond // 1_000:03}Z"


def read_time(text: str) -> datetime:
    """Reads a time the server wrote."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def read_time_or_none(text: str | None) -> datetime | None:
    """Reads a time that may be missing."""
    return None if text is None else read_time(text)


def write_duration(duration: Duration) -> str | float | int:
    """Writes a duration for the server, to the millisecond."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, float):
        return round(duration, 3)
    return duration


def read_duration(text: str | float | int) -> timedelta:
    """Reads a duration as the server does: `"1h30m"`, `"250ms"`, `"PT90S"`; or a number of seconds.

    Raises:
        ValueError: if it is none of these.
    """
    if isinstance(text, (int, float)):
        return timedelta(seconds=text)
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return timedelta(seconds=float(text))
    iso = _ISO.fullmatch(text)
    if iso is not None:
        weeks, days, hours, minutes, seconds = (float(number or 0) for number in iso.groups())
        return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    return _read_parts(text)


def _read_parts(text: str) -> timedelta:
    """Reads a duration of numbers and units: each unit once, the largest first."""
    seconds, end, larger_s = 0.0, 0, float("inf")
    while True:
        part = _PART.match(text, end)
        if part is None or _UNITS_S[part[2]] >= larger_s:
            raise ValueError(f"{text!r} is not a duration such as 90s or 1h30m")
        larger_s = _UNITS_S[part[2]]
        seconds += float(part[1]) * larger_s
        end = part.end()
        if end == len(text):
            return timedelta(seconds=round(seconds, 3))


def in_seconds(duration: Duration) -> float:
    """How many seconds a duration has. Texts are those of `read_duration`."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    return read_duration(duration).total_seconds()
