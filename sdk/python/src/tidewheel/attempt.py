"""One attempt at a job, from being taken to its outcome.

It is kept alive by heartbeats from the moment it is taken, whether its handler has started or not, until its outcome is
told. A worker trusts its lease a little less long than the server does: once no heartbeat has got through for that time
the attempt counts as lost, and the handler is told.

When a lease began is not known: somewhere between the request for jobs and its answer, which may be longer than the
lease. It is sure to hold only from the request on. A job that comes later than that is not started before a heartbeat
has got through; only the server can say that a job is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol
from urllib.parse import quote

from . import limits
from .context import Context, TakenJob
from .encoding import PayloadError, to_json
from .errors import (
    ApiError,
    Conflict,
    Invalid,
    NotFound,
    StaleToken,
    TidewheelError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from .handlers import Handler
from .outcomes import HANDED_BACK, Fail, Outcome, Retry, checked_result, not_taken, outcome_of
from .patience import Patience
from .transport import Call, Transport

_LOG = logging.getLogger("tidewheel.worker")


class Reporter(Protocol):
    """Where signs of life and outcomes go."""

    async def heartbeat(self, job: TakenJob, extend_s: float, progress: Any, timeout_s: float) -> None:
        """Keeps the lease. Raises `StaleToken` or `NotFound` if the attempt is over."""

    async def outcome(self, job: TakenJob, outcome: Outcome) -> None:
        """Tells what came of it. Raises `StaleToken` if the attempt was over before."""


@dataclass(frozen=True)
class HttpReporter:
    """Reports to the server."""

    transport: Transport

    async def heartbeat(self, job: TakenJob, extend_s: float, progress: Any, timeout_s: float) -> None:
        """Keeps the lease. Tried once: the next one is due soon anyway."""
        body = {"token": job.token, "extend": extend_s}
        if progress is not None:
            body["progress"] = progress
        path = f"/v1/jobs/{quote(job.id, safe='')}/heartbeat"
        await self.transport.once(Call("POST", path, body=to_json(body), timeout_s=timeout_s))

    async def outcome(self, job: TakenJob, outcome: Outcome) -> None:
        """Tells what came of it; the same outcome told twice is told once."""
        path = f"/v1/jobs/{quote(job.id, safe='')}/outcome"
        patience = Patience(total_wait_s=limits.OUTCOME_TOTAL_WAIT_S, longest_wait_s=limits.TAKE_RETRY_LONGEST_WAIT_S)
        await self.transport.send(Call("POST", path, body=outcome.to_wire(job.token), insistent=True), patience)


class HeldAttempt:
    """A job this worker holds."""

    def __init__(self, job: TakenJob, worker: str, reporter: Reporter, lease_s: float, asked_at: float) -> None:
        """Holds a job that has just come.

        Args:
            job: what came.
            worker: who holds it.
            reporter: where signs of life and the outcome go.
            lease_s: how long each sign of life is good for.
            asked_at: when jobs were asked for, by `time.monotonic`: the lease began no earlier.
        """
        self.job = job
        self.context = Context(job, worker, self._on_progress)
        self._reporter = reporter
        self._lease_s = lease_s
        trusted_s = lease_s * limits.LEASE_TRUSTED_PART
        # The lease holds until then, whenever it began.
        self._sure_until = asked_at + trusted_s
        # The lease may hold until then: it began no later than now.
        self._possible_until = monotonic() + trusted_s
        self._heard = asyncio.Event()
        self._progress_came = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._interrupted: str | None = None
        self._cut_short = False
        self._task: asyncio.Future[Any] | None = None
        self._is_async = True
        self.stuck_thread = False
        """Whether the handler's thread goes on although the attempt is over."""

    def _on_progress(self) -> None:
        self._progress_came.set()

    def keep(self) -> None:
        """Begins to send signs of life."""
        self._beating = asyncio.create_task(self._beat())

    async def let_go(self) -> None:
        """Stops sending signs of life."""
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating

    async def _beat(self) -> None:
        every_s = self._lease_s / limits.HEARTBEATS_PER_LEASE
        last, sent = monotonic(), None
        # Sooner where a long wait for jobs has left little of what is sure.
        wait_s = max(0.0, min(every_s, self._sure_until - every_s - last))
        while True:
            try:
                await asyncio.wait_for(self._progress_came.wait(), wait_s)
                # Progress goes out soon, but not each on its own.
                await asyncio.sleep(max(0.0, min(limits.PROGRESS_EVERY_S - (monotonic() - last), every_s)))
            except asyncio.TimeoutError:
                pass
            self._progress_came.clear()
            progress = self.context.latest_progress
            news = None if progress is sent else progress
            last = monotonic()
            try:
                await self._reporter.heartbeat(self.job, self._lease_s, news, self._beat_timeout_s(every_s))
                sent, wait_s = progress, every_s
                self._sure_until = self._possible_until = last + self._lease_s * limits.LEASE_TRUSTED_PART
                self._heard.set()
                continue
            except (StaleToken, NotFound) as error:
                self.context.call_off(f"the attempt is over: {error.detail}")
                return
            except (ApiError, Unreachable) as error:
                _LOG.warning("no heartbeat for %s: %s", self.job.id, error)
                wait_s = min(every_s / limits.HEARTBEATS_PER_LEASE, limits.TAKE_RETRY_LONGEST_WAIT_S)
                if news is not None and isinstance(error, Invalid):
                    # Sent again, it would spoil every heartbeat after this one.
                    sent, wait_s = progress, 0.0
            if monotonic() > self._possible_until:
                self.context.call_off("no heartbeat got through for the time of the lease")

    def _beat_timeout_s(self, every_s: float) -> float:
        """How long a heartbeat may take: as long as it is good for; of a short lease longer, while that is trusted."""
        left_s = self._possible_until - monotonic()
        return max(every_s, min(left_s, limits.HEARTBEAT_TIMEOUT_S_MIN))

    async def _is_held(self) -> bool:
        """Whether the job is still this worker's. Where that is not sure, waits for the server to say so."""
        while not self.context.is_called_off and monotonic() > self._sure_until:
            if self._beating is None or self._beating.done():
                return False
            self._heard.clear()
            # A heartbeat that is refused ends the sending of them.
            heard = asyncio.create_task(self._heard.wait())
            called_off = asyncio.create_task(self.context.cancelled.wait())
            try:
                await asyncio.wait({heard, called_off, self._beating}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                heard.cancel()
                called_off.cancel()
        return not self.context.is_called_off

    async def run(self, handler: Handler | None) -> None:
        """Runs the handler and tells what came of it. Never raises for what the handler does."""
        if not await self._is_held():
            if self._interrupted is not None:
                await self.tell(HANDED_BACK)
                return
            _LOG.warning("%s was lost before it started: %s", self.job.id, self.context.why_cancelled)
            return
        if handler is None:
            outcome = Outcome("failed", error=f"no handler for the type {self.job.type!r} on this worker")
        else:
            outcome = await self.find_outcome(handler)
        if self._interrupted is not None:
            if self.stuck_thread:
                _LOG.warning("%s still runs in its thread; its lease is left to run out", self.job.id)
                return
            # Work that was done all the same is not to be done again. One that knew of its end may have left some.
            if outcome.status != "succeeded" or self._cut_short or self.context.has_noticed:
                outcome = HANDED_BACK
        await self.tell(outcome)
        await self._wait_for_thread()

    async def _wait_for_thread(self) -> None:
        """Keeps the place of a handler whose thread goes on after its attempt: threads must not pile up."""
        if self.stuck_thread and self._task is not None:
            self.context.log.warning("the handler still runs in its thread and keeps its place until it ends")
            await self.let_go()
            await asyncio.wait({self._task})
            _retrieve(self._task)

    async def tell(self, outcome: Outcome) -> None:
        """Tells what came of it, and logs for the handler if nobody wants to know any more."""
        log = self.context.log
        try:
            try:
                await self._reporter.outcome(self.job, outcome)
            except Exception as error:
                # What is handed back has nothing in it to refuse, and must not end for it.
                if outcome is HANDED_BACK or not _is_about_content(error):
                    raise
                log.error("the outcome %r is refused, and the attempt ends as failed: %s", outcome.status, error)
                await self._reporter.outcome(self.job, not_taken(outcome, error))
        except StaleToken:
            log.warning(
                "the outcome %r came too late and was refused (stale_token): the attempt with token %s is over, "
                "and another one may have run",
                outcome.status,
                self.job.token,
            )
        except NotFound:
            log.warning("the outcome %r was refused: the job is gone", outcome.status)
        except TidewheelError as error:
            log.error("the outcome %r could not be told; the job will be run again: %s", outcome.status, error)

    def interrupt(self, why: str) -> None:
        """Ends the handler because the worker stops; the job is handed back.

        A thread cannot be ended. What it returns within the grace without having asked whether it is cancelled is the
        outcome; what an async handler makes of being interrupted is not.
        """
        self._interrupted = why
        self.context.call_off(why)
        if self._task is not None and self._is_async:
            self._cut_short = self._task.cancel()

    async def find_outcome(self, handler: Handler) -> Outcome:
        """Runs the handler under its time limit."""
        try:
            self._task = asyncio.ensure_future(handler.call(self.context))
        except Exception as error:
            return outcome_of(error)
        task, context, self._is_async = self._task, self.context, handler.is_async
        limit_s = self.job.timeout.total_seconds()
        called_off = asyncio.create_task(context.cancelled.wait())
        try:
            await asyncio.wait({task, called_off}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            timed_out = not task.done() and not context.is_called_off
            if timed_out:
                context.call_off(f"the time limit of {limit_s:g} s has passed")
            elif not task.done():
                await asyncio.wait({task}, timeout=limits.CANCEL_GRACE_S)
        finally:
            called_off.cancel()
        if not task.done() and handler.is_async:
            task.cancel()
            await asyncio.wait({task}, timeout=limits.CANCEL_GRACE_S)
        self.stuck_thread = not task.done() and not handler.is_async
        if timed_out:
            _retrieve(task)
            return Outcome("failed", error=f"timed out after {limit_s:g} s")
        return self._outcome_of_task(task)

    def _outcome_of_task(self, task: asyncio.Future[Any]) -> Outcome:
        if not task.done():
            return Outcome("failed", error="the handler does not end")
        if task.cancelled():
            return outcome_of(asyncio.CancelledError())
        error = task.exception()
        if error is not None:
            outcome = outcome_of(error)
            delay_s = outcome.retry_after_s
            if delay_s is not None and delay_s > limits.RETRY_DELAY_S_MAX:
                self.context.log.warning("it is run again in 7 days, not in %g s: no delay is longer", delay_s)
            if outcome.status == "failed":
                level = logging.INFO if isinstance(error, Retry) else logging.WARNING
                is_said = isinstance(error, (Retry, Fail, PayloadError))
                self.context.log.log(level, "%s", outcome.error, exc_info=None if is_said else error)
            return outcome
        result, fault = checked_result(task.result())
        if fault is not None:
            self.context.log.warning("the result is not kept: %s", fault)
        return Outcome("succeeded", result=result)


def _is_about_content(error: Exception) -> bool:
    """Whether an outcome was refused for what it says, and would be the next time as well."""
    if not isinstance(error, ApiError):
        # What cannot be written is none of ours; a server that is not reached has refused nothing.
        return not isinstance(error, TidewheelError)
    others = (Unauthorized, NotFound, Conflict, TooManyRequests, Unavailable)
    return 400 <= error.status < 500 and not isinstance(error, others)  # noqa: PLR2004


def _retrieve(task: asyncio.Future[Any]) -> None:
    """Looks at an exception nobody waits for, so that it is not logged as forgotten."""
    if task.done() and not task.cancelled():
        task.exception()
