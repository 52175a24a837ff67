"""What may come of an attempt: exceptions a handler raises to say so, and the report that is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from . import limits
from .encoding import PayloadError, cut_text, to_json, to_small_json
from .times import Duration, in_seconds

Status = Literal["succeeded", "failed", "snoozed", "cancelled"]
"""What came of an attempt."""


class Retry(Exception):
    """Raised by a handler: try again, not before `after` has passed if that is given; at most 7 days count."""

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after_s = None if after is None else in_seconds(after)


class Fail(Exception):
    """Raised by a handler: trying again cannot help. The job becomes a dead letter."""


class Snooze(Exception):
    """Raised by a handler: run it again later, at no cost to its attempts. Either `delay` or `until`.

    It sleeps for at most 7 days: a handler that is to wait longer looks at the time, and snoozes again.
    """

    def __init__(self, *, delay: Duration | None = None, until: datetime | None = None) -> None:
        if (delay is None) == (until is None):
            raise ValueError("a snooze needs either a delay or a time")
        if until is not None and until.tzinfo is None:
            raise ValueError("the time to snooze until needs a time zone")
        super().__init__()
        self._delay_s = None if delay is None else in_seconds(delay)
        self._until = until

    @property
    def delay_s(self) -> float:
        """How much later, from now."""
        if self._until is not None:
            return max(0.0, (self._until - datetime.now(timezone.utc)).total_seconds())
        return self._delay_s or 0.0


class Cancelled(Exception):
    """Raised by a handler: the job is given up as called off."""


@dataclass(frozen=True)
class Outcome:
    """What is reported of an attempt."""

    status: Status
    result: Any = None
    """What the handler returned."""
    error: str | None = None
    retryable: bool = True
    retry_after_s: float | None = None

    def to_wire(self, token: int) -> bytes:
        """The JSON of it, within what the server takes.

        Raises:
            TypeError: if the result is not JSON.
            ValueError: if it is too large or nests too deep; see `checked_result`.
        """
        body: dict[str, Any] = {"token": token, "status": self.status}
        if self.error is not None:
            body["error"] = cut_text(self.error, limits.ERROR_BYTES_MAX)
        if self.status == "failed":
            body["retryable"] = self.retryable
        if self.retry_after_s is not None:
            body["retry_after"] = round(bounded_delay_s(self.retry_after_s), 3)
        head = to_json(body)
        if self.result is None:
            return head
        return head[:-1] + b',"result":' + to_small_json(self.result) + b"}"


HANDED_BACK = Outcome("snoozed", retry_after_s=0.0)
"""Another worker may have it at once, at no cost to its attempts."""


def bounded_delay_s(delay_s: float) -> float:
    """The delay that is nearest to the given one among those the server takes."""
    return min(max(delay_s, 0.0), limits.RETRY_DELAY_S_MAX)


def not_taken(outcome: Outcome, why: object) -> Outcome:
    """What is reported in the place of an outcome that the server does not take.

    It would not take it the next time either, so that the work would be done over and over: the attempt is the last.
    """
    return Outcome("failed", error=f"the outcome {outcome.status!r} was refused: {why}", retryable=False)


def checked_result(result: object) -> tuple[object, str | None]:
    """A result that can be sent, and why the given one could not be: then the work is done all the same."""
    try:
        to_small_json(result)
    except Exception as error:  # also those of a model that does not let itself be written
        return None, told(error)
    return result, None


def told(error: BaseException) -> str:
    """The beginning of what an exception says, fit to be logged and sent, even if it cannot say it."""
    try:
        return cut_text(str(error), limits.ERROR_BYTES_MAX)
    except Exception:
        return "an exception that cannot be shown"


def outcome_of(error: BaseException) -> Outcome:
    """What an exception of a handler means."""
    reason = told(error)
    match error:
        case Retry():
            return Outcome("failed", error=reason or "the handler asked for another try", retry_after_s=error.after_s)
        case Fail():
            return Outcome("failed", error=reason or "the handler gave up", retryable=False)
        case PayloadError():
            return Outcome("failed", error=f"the payload does not fit: {reason}", retryable=False)
        case Snooze():
            return Outcome("snoozed", retry_after_s=error.delay_s)
        case Cancelled():
            return Outcome("cancelled", error=reason or None)
        case asyncio.CancelledError():
            return Outcome("failed", error="the handler was interrupted")
        case _:
            return Outcome("failed", error=f"{type(error).__name__}: {reason}" if reason else type(error).__name__)
