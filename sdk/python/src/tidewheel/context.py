"""What a handler is told about the job it runs, and what it can say while it does."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from .encoding import to_small_json
from .models import Json, Wire, read_span
from .outcomes import Cancelled
from .times import read_time_or_none


@dataclass(frozen=True)
class TakenJob(Wire):
    """A job a worker has taken."""

    READ = {
        **dict.fromkeys(("fire_at", "run_at", "created_at", "expires_at", "lease_until"), read_time_or_none),
        "timeout": read_span,
    }

    id: str
    tenant: str
    type: str
    payload: Json
    attempt: int
    max_attempts: int
    token: int
    idempotency_key: str
    fire_at: datetime
    run_at: datetime
    created_at: datetime
    catch_up: bool
    queue: str
    priority: str
    timeout: timedelta
    labels: Mapping[str, str]
    expires_at: datetime | None = None
    lease_until: datetime | None = None
    schedule_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None


if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # not generic at run time before Python 3.11
    _Adapter = logging.LoggerAdapter


class _JobLog(_Adapter):
    """Puts the job in front of every message."""

    def process(self, msg: object, kwargs: MutableMapping[str, Any]) -> tuple[object, MutableMapping[str, Any]]:
        extra = self.extra or {}
        return f"[{extra['tidewheel_job']} attempt {extra['tidewheel_attempt']}] {msg}", {
            **kwargs,
            "extra": extra,
        }


class _Notice(asyncio.Event):
    """Knows whether somebody has looked and seen that it is set."""

    def __init__(self) -> None:
        super().__init__()
        self.was_seen = False

    def is_set(self) -> bool:
        is_set = super().is_set()
        self.was_seen = self.was_seen or is_set
        return is_set


class Context:
    """The job a handler runs. All facts are read-only."""

    def __init__(self, job: TakenJob, worker: str, on_progress: Callable[[], None] | None = None) -> None:
        self.job = job
        """Everything the server said of the job."""
        self.worker = worker
        """The name of the worker that runs it."""
        self.cancelled: asyncio.Event = _Notice()
        """Set when the attempt is over before the handler is: the job was cancelled or given to another worker, the
        time limit has passed, or the worker is stopping. `is_set()` may be asked from any thread."""
        self.why_cancelled: str | None = None
        """Why `cancelled` is set, in words."""
        self.log: logging.LoggerAdapter[logging.Logger] = _JobLog(
            logging.getLogger(f"tidewheel.handler.{job.type}"),
            {"tidewheel_job": job.id, "tidewheel_attempt": job.attempt},
        )
        """A logger that names the job: `tidewheel.handler.TYPE`."""
        self._loop = asyncio.get_running_loop()
        self._on_progress = on_progress
        self.latest_progress: Json = None
        """What `progress` was last told."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.job.id

    @property
    def type(self) -> str:
        """The job's type."""
        return self.job.type

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.job.queue

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self.job.tenant

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self.job.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts the job has."""
        return self.job.max_attempts

    @property
    def token(self) -> int:
        """The fencing token: rises with every attempt. Hand it to what you write to, to refuse older ones there."""
        return self.job.token

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of a job, different for every occurrence: what the inbox records."""
        return self.job.idempotency_key

    @property
    def fire_at(self) -> datetime:
        """The nominal time: what a report is *for*."""
        return self.job.fire_at

    @property
    def run_at(self) -> datetime:
        """When this attempt was set to start."""
        return self.job.run_at

    @property
    def catch_up(self) -> bool:
        """Whether it is late, to make up for a missed time."""
        return self.job.catch_up

    @property
    def labels(self) -> Mapping[str, str]:
        """The job's labels."""
        return self.job.labels

    @property
    def traceparent(self) -> str | None:
        """W3C trace context of this attempt, if the job is in a trace: what your own spans go on from."""
        return self.job.traceparent

    @property
    def tracestate(self) -> str | None:
        """What goes with `traceparent`."""
        return self.job.tracestate

    @property
    def timeout(self) -> timedelta:
        """How long this attempt may take."""
        return self.job.timeout

    @property
    def payload(self) -> Json:
        """The payload as it came, not converted."""
        return self.job.payload

    def progress(self, value: Json) -> None:
        """Says how far it is: any JSON of at most 8,192 bytes and 128 levels, shown with the job.

        Can be called from any thread, and as often as one likes: the latest is sent, about twice a second.

        Raises:
            ValueError: if it is too large, or holds what JSON cannot.
            TypeError: if it is not JSON.
        """
        text = to_small_json(value)
        # As it is now: the caller may go on changing what it passed.
        self.latest_progress = json.loads(text)
        if self._on_progress is not None:
            self._loop.call_soon_threadsafe(self._on_progress)

    def raise_if_cancelled(self) -> None:
        """Ends the handler if the attempt is over.

        Raises:
            Cancelled: if it is.
        """
        if self.cancelled.is_set():
            raise Cancelled(self.why_cancelled or "")

    def call_off(self, why: str) -> None:
        """Tells the handler that its attempt is over; for the worker and for tests."""
        if not self.is_called_off:
            self.why_cancelled = why
            self.cancelled.set()

    @property
    def is_called_off(self) -> bool:
        """Whether the attempt is over; asked by the worker, this is no look of the handler's."""
        return self.why_cancelled is not None

    @property
    def has_noticed(self) -> bool:
        """Whether the handler has asked and heard that its attempt is over: what it returns may be half of its work."""
        return isinstance(self.cancelled, _Notice) and self.cancelled.was_seen
