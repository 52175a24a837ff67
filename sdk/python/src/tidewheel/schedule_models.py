"""Schedules, their fires and their ledger, as plain frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict

from .models import Json, Priority, RetryPolicy, Target, Wire, read_span, wire_duration, wire_time
from .times import Duration, Time, read_time_or_none


class TimeRule(TypedDict, total=False):
    """When a schedule fires: the fields a preview takes."""

    cron_expr: str
    """Five fields, or six with seconds first. Not with `every`."""
    every: Duration
    """From one fire to the next."""
    timezone: str
    """An IANA name; `UTC` by default."""
    start_at: Time
    end_at: Time
    window: Duration
    """Each occurrence starts within this of its time, at a place that is always the same."""
    dst: Mapping[str, str]
    """`{"gap": "next_valid" | "skip", "fold": "first" | "both"}`."""
    exclude: Sequence[str] | str | Mapping[str, Any]
    """Dates, the name of a calendar, or an object with either and `roll`."""


class ScheduleFields(TimeRule, total=False):
    """Everything about a schedule that can be set."""

    type: str
    """The type of its jobs; by default the schedule's name."""
    payload: Json
    queue: str
    target: Target | str
    priority: Priority
    retry: RetryPolicy
    max_attempts: int
    timeout: Duration
    labels: Mapping[str, str]
    misfire: Literal["fire_all", "fire_latest", "skip"]
    misfire_cap: int
    misfire_grace: Duration
    overlap: Literal["allow", "skip", "buffer_one", "cancel_running"]
    idempotency_key: str
    """The key of the creation, and what the keys of occurrences begin with."""
    paused: bool
    note: str


_WRITE: Mapping[str, Callable[[Any], Any]] = {
    "every": wire_duration,
    "window": wire_duration,
    "timeout": wire_duration,
    "misfire_grace": wire_duration,
    "start_at": wire_time,
    "end_at": wire_time,
    "from": wire_time,
    "to": wire_time,
    "retry": lambda retry: retry.to_wire() if isinstance(retry, RetryPolicy) else retry,
    "target": lambda target: (Target(target) if isinstance(target, str) else target).to_wire(),
}


def write_schedule(values: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a schedule's fields. A `None` is kept: in a patch it takes a field away."""
    return {name: value if value is None else _WRITE.get(name, lambda v: v)(value) for name, value in values.items()}


@dataclass(frozen=True)
class Schedule(Wire):
    """A schedule as it is."""

    READ = {
        **dict.fromkeys(
            ("next_fire_at", "next_run_at", "last_fire_at", "start_at", "end_at", "created_at", "updated_at"),
            read_time_or_none,
        ),
        **dict.fromkeys(("every", "window", "misfire_grace", "timeout"), read_span),
    }

    id: str
    tenant: str
    state: str
    """`active`, `paused` or `ended`."""
    paused: bool
    version: int
    """Rises with every change, never with a fire."""
    timezone: str
    name: str | None = None
    next_fire_at: datetime | None = None
    """The nominal time of the next fire."""
    next_run_at: datetime | None = None
    """Its effective time."""
    last_fire_at: datetime | None = None
    cron_expr: str | None = None
    every: timedelta | None = None
    window: timedelta | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    dst: Mapping[str, str] | None = None
    exclude: Any = None
    type: str | None = None
    payload: Json = None
    queue: str | None = None
    target: Mapping[str, Any] | None = None
    priority: str | None = None
    retry: Mapping[str, Any] | None = None
    timeout: timedelta | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    misfire: str | None = None
    misfire_cap: int | None = None
    misfire_grace: timedelta | None = None
    overlap: str | None = None
    idempotency_key: str | None = None
    note: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    duplicate: bool = False
    """Of an answer to a creation: whether it was a repeat."""


@dataclass(frozen=True)
class Fire(Wire):
    """A fire to come."""

    READ = dict.fromkeys(("fire_at", "run_at"), read_time_or_none)

    fire_at: datetime
    """The nominal time."""
    run_at: datetime
    """The effective time."""
    note: str | None = None
    """Why it is not where the beat alone would have it: `dst_gap`, `dst_fold` or `rolled`."""


@dataclass(frozen=True)
class Firing(Wire):
    """What became of one nominal instant of a schedule."""

    READ = {
        **dict.fromkeys(
            ("fire_at", "run_at", "decided_at", "started_at", "finished_at", "coalesced_into"),
            read_time_or_none,
        ),
        "lag": read_span,
    }

    fire_at: datetime
    outcome: str
    """`fired`, `coalesced`, `skipped`, `missed`, `triggered` or `backfilled`."""
    decided_at: datetime
    catch_up: bool = False
    reason: str | None = None
    job_id: str | None = None
    state: str | None = None
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    lag: timedelta | None = None
    attempts: int | None = None
    coalesced_into: datetime | None = None


@dataclass(frozen=True)
class Triggered(Wire):
    """The job of a schedule that was triggered by hand."""

    READ = {"run_at": read_time_or_none}

    job_id: str
    schedule_id: str
    state: str
    run_at: datetime


@dataclass(frozen=True)
class Backfilled(Wire):
    """What a backfill made."""

    READ = dict.fromkeys(("last_run_at", "next_from"), read_time_or_none)

    count: int
    """Jobs made."""
    duplicates: int
    """Instants that were made up for before."""
    last_run_at: datetime | None = None
    next_from: datetime | None = None
    """Where the next call goes on; `None` at the end."""
