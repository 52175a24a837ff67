"""What may come of an attempt: exceptions a handler raises to say so, and the report that is sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from . import limits
from .encoding import PayloadError, to_json
from .times import Duration, in_seconds

Status = Literal["succeeded", "failed", "snoozed", "cancelled"]
"""What came of an attempt."""


class Retry(Exception):
    """Raised by a handler: try again, not before `after` has passed if that is given."""

    def __init__(self, reason: str = "", *, after: Duration | None = None) -> None:
        super().__init__(reason)
        self.after_s = None if after is None else in_seconds(after)


class Fail(Exception):
    """Raised by a handler: trying again cannot help. The job becomes a dead letter."""


class Snooze(Exception):
    """Raised by a handler: run it again later, at no cost to its attempts. Either `delay` or `until`."""

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
        """The JSON of it. A result that cannot be kept is left out: the work is done all the same."""
        body: dict[str, Any] = {"token": token, "status": self.status}
        if self.error is not None:
            body["error"] = self.error[: limits.ERROR_CHARS_MAX]
        if self.status == "failed":
            body["retryable"] = self.retryable
        if self.retry_after_s is not None:
            body["retry_after"] = round(self.retry_after_s, 3)
        if self.result is not None:
            body["result"] = self.result
        return to_json(body)


HANDED_BACK = Outcome("snoozed", retry_after_s=0.0)
"""Another worker may have it at once, at no cost to its attempts."""


def checked_result(result: object) -> tuple[object, str | None]:
    """A result that can be sent, and why the given one could not be."""
    try:
        size = len(to_json(result))
    except (TypeError, ValueError) as error:
        return None, str(error)
    if size > limits.RESULT_BYTES_MAX:
        return None, f"it has {size} bytes; at most {limits.RESULT_BYTES_MAX} are kept"
    return result, None


def outcome_of(error: BaseException) -> Outcome:
    """What an exception of a handler means."""
    reason = str(error)
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
