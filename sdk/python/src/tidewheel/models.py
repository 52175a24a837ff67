"""What is sent and what comes back, as plain frozen dataclasses.

Fields a newer server adds are ignored, so that an older client keeps working.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, Literal, TypeVar

from .encoding import to_json
from .errors import ApiError
from .times import Duration, Time, read_duration, read_time_or_none, write_duration, write_time

Priority = Literal["critical", "high", "normal", "low"]
"""How urgent a job is."""

Json = Any
"""Any JSON: `None`, a bool, a number, a text, a list or a dict. Dataclasses and pydantic models are objects."""

T = TypeVar("T")
W = TypeVar("W", bound="Wire")


@dataclass(frozen=True)
class RetryPolicy:
    """When a failed job is tried again. What is left out is the server's choice."""

    max_attempts: int | None = None
    policy: Literal["fixed", "exponential", "exponential_jitter"] | None = None
    base: Duration | None = None
    multiplier: float | None = None
    max: Duration | None = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON of it."""
        return compact(
            max_attempts=self.max_attempts,
            policy=self.policy,
            base=wire_duration(self.base),
            multiplier=self.multiplier,
            max=wire_duration(self.max),
        )


@dataclass(frozen=True)
class Target:
    """Where a job is pushed to."""

    url: str
    method: str | None = None
    headers: Mapping[str, str] | None = None
    timeout: Duration | None = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON of it."""
        headers = None if self.headers is None else dict(self.headers)
        return compact(url=self.url, method=self.method, headers=headers, timeout=wire_duration(self.timeout))


@dataclass(frozen=True)
class NewJob:
    """A job to submit."""

    type: str
    """What the worker or target is to do."""
    payload: Json = None
    """Any JSON, at most 65,536 bytes."""
    run_at: Time | None = None
    """When to run. Not with `delay`; without either: now."""
    delay: Duration | None = None
    """How much later to run."""
    queue: str | None = None
    """Where workers take it from; `default` if neither this nor `target` is given."""
    target: Target | str | None = None
    """Where to push it to: a target, or only its URL."""
    priority: Priority | None = None
    retry: RetryPolicy | None = None
    max_attempts: int | None = None
    """Short for `RetryPolicy(max_attempts=…)`."""
    timeout: Duration | None = None
    """How long one attempt may take; 30 s by default."""
    expires_at: Time | None = None
    """When it is no longer worth starting."""
    idempotency_key: str | None = None
    """The same key within 24 h makes one job. One is generated if there is none."""
    labels: Mapping[str, str] | None = None
    traceparent: str | None = None
    """W3C trace context it belongs to; handed on to whoever runs it."""
    tracestate: str | None = None
    """What goes with it."""

    def to_wire(self, idempotency_key: str) -> bytes:
        """The JSON of it, under this key."""
        target = Target(self.target) if isinstance(self.target, str) else self.target
        head = compact(
            type=self.type,
            run_at=wire_time(self.run_at),
            delay=wire_duration(self.delay),
            queue=self.queue,
            target=None if target is None else target.to_wire(),
            priority=self.priority,
            retry=None if self.retry is None else self.retry.to_wire(),
            max_attempts=self.max_attempts,
            timeout=wire_duration(self.timeout),
            expires_at=wire_time(self.expires_at),
            idempotency_key=idempotency_key,
            labels=None if self.labels is None else dict(self.labels),
            traceparent=self.traceparent,
            tracestate=self.tracestate,
        )
        if self.payload is not None:
            head["payload"] = self.payload
        return to_json(head)


@dataclass(frozen=True)
class Wire:
    """What the server sends."""

    READ: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    @classmethod
    def from_wire(cls: type[W], body: Mapping[str, Any]) -> W:
        """Reads the JSON; unknown fields are ignored."""
        values = {f.name: cls.READ.get(f.name, _same)(body[f.name]) for f in fields(cls) if f.name in body}
        return cls(**values)


def _same(value: Any) -> Any:
    return value


def read_span(text: Any) -> timedelta | None:
    """Reads a duration that may be missing."""
    return None if text is None else read_duration(text)


_JOB_TIMES: Mapping[str, Callable[[Any], Any]] = dict.fromkeys(
    ("run_at", "fire_at", "created_at", "started_at", "finished_at", "expires_at", "lease_until"),
    read_time_or_none,
)


@dataclass(frozen=True)
class Submitted(Wire):
    """A job that was taken in."""

    READ = _JOB_TIMES

    id: str
    duplicate: bool
    """Whether the key had been used by the same job before."""
    idempotency_key: str
    state: str | None = None
    """Not told of jobs submitted together."""
    run_at: datetime | None = None
    """Not told of jobs submitted together."""


@dataclass(frozen=True)
class Job(Wire):
    """A job as it is."""

    READ = {**_JOB_TIMES, "timeout": read_span}

    id: str
    tenant: str
    type: str
    state: str
    """`scheduled`, `ready`, `running`, `retrying`, `succeeded`, `dead`, `cancelled`, `skipped` or `expired`."""
    run_at: datetime
    fire_at: datetime
    created_at: datetime
    priority: str
    timeout: timedelta
    idempotency_key: str
    attempt: int
    """Attempts started so far."""
    max_attempts: int
    catch_up: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    payload: Json = None
    """Left out of lists, unless asked for, and of answers to changes."""
    queue: str | None = None
    target: Mapping[str, Any] | None = None
    retry: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None
    last_error: str | None = None
    reason: str | None = None
    """Why it ended as it did, where the last error does not say it."""
    result: Json = None
    progress: Json = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    lease_until: datetime | None = None
    schedule_id: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it will not run again by itself."""
        return self.state in ("succeeded", "dead", "cancelled", "skipped", "expired")


@dataclass(frozen=True)
class Attempt(Wire):
    """One run of a job."""

    READ = _JOB_TIMES

    attempt: int
    state: str
    worker: str
    started_at: datetime
    detail: str = ""
    finished_at: datetime | None = None
    lease_until: datetime | None = None
    status_code: int | None = None
    progress: Json = None


@dataclass(frozen=True)
class Explanation(Wire):
    """Why a job has not run yet."""

    READ = dict.fromkeys(("now", "run_at", "expected_start"), read_time_or_none)

    id: str
    state: str
    detail: str
    """What it waits for, in words."""
    waits_for: str | None
    expected_start: datetime | None
    run_at: datetime
    now: datetime
    attempt: int
    failures: int
    max_attempts: int


@dataclass(frozen=True)
class Count(Wire):
    """How many jobs there are."""

    count: int
    complete: bool
    """Whether all jobs were looked at."""
    counts: Mapping[str, int] | None = None
    """By state, where nothing else was asked for."""
    total: int | None = None


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list."""

    items: Sequence[T]
    next_cursor: str | None
    """Where the next page begins; `None` at the end."""


@dataclass(frozen=True)
class Done:
    """What became of one job of many."""

    id: str
    ok: bool
    state: str | None = None
    error: ApiError | None = None


@dataclass(frozen=True)
class Bulk:
    """What became of many jobs."""

    count: int
    """Jobs for which it was done."""
    refused: int
    items: Sequence[Done]
    next_cursor: str | None
    """Where the next call goes on; `None` at the end."""


def compact(**values: Any) -> dict[str, Any]:
    """Those of the values that were given."""
    return {name: value for name, value in values.items() if value is not None}


def wire_time(time: Time | None) -> str | None:
    """Writes a time that may be missing."""
    return None if time is None else write_time(time)


def wire_duration(duration: Duration | None) -> str | float | int | None:
    """Writes a duration that may be missing."""
    return None if duration is None else write_duration(duration)
