"""The worker: takes jobs from queues, runs their handlers, and tells what came of them.

One task per queue asks the server for jobs (a long poll) while there is room. What is taken waits in line for a free
place if several queues answer at once, kept alive by heartbeats like what runs. Told to stop, the worker asks no more,
hands back what has not started or is still on its way, and gives what runs until a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar
from urllib.parse import quote

from . import limits
from .attempt import HeldAttempt, HttpReporter
from .context import TakenJob
from .encoding import to_json
from .errors import ApiError, Invalid, TidewheelError, Unauthorized
from .handlers import Function, Handler
from .outcomes import HANDED_BACK
from .patience import Patience, Waits
from .times import Duration, in_seconds
from .tls import Tls
from .transport import Call, Transport, url_default

_LOG = logging.getLogger("tidewheel.worker")

F = TypeVar("F", bound=Function)

# Never gives up on a server that is gone; the total is what makes a `Waits` end.
_UNTIL_BACK = Patience(longest_wait_s=limits.TAKE_RETRY_LONGEST_WAIT_S, total_wait_s=float("inf"))


class Worker:
    """Runs jobs.

    ```python
    worker = Worker(queues=["emails"], concurrency=20)

    @worker.handler("send-email")
    async def send_email(payload: Email, ctx: Context) -> None:
        ...

    asyncio.run(worker.run())
    ```

    Args:
        url: where the server is; by default what `TIDEWHEEL_URL` says, or `http://127.0.0.1:7400`.
        queues: where to take jobs from.
        concurrency: handlers that run at a time, all queues together.
        name: who the worker says it is; by default the host and the process.
        key: the API key, if the server asks for one; by default what `TIDEWHEEL_KEY` says.
        tenant: whom to work for, if not for the key's own tenant; by default what `TIDEWHEEL_TENANT` says.
        tls: whom to trust and what to show, if the URL begins with `https://`; see `Tls`.
        lease: how long a job is safe from others without a sign of life. A third of it is the time between two.
        wait: how long one request for jobs waits.
        drain: how long handlers may take to end after the worker was told to stop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = limits.CONCURRENCY_DEFAULT,
        name: str | None = None,
        key: str | None = None,
        tenant: str | None = None,
        tls: Tls | None = None,
        lease: Duration = limits.LEASE_S_DEFAULT,
        wait: Duration = limits.TAKE_WAIT_S_DEFAULT,
        drain: Duration = limits.DRAIN_S_DEFAULT,
    ) -> None:
        if isinstance(queues, str) or not queues:
            raise ValueError("queues are a list of at least one name")
        if concurrency < 1:
            raise ValueError("a worker runs at least one job at a time")
        self.url = url or url_default()
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._queues = tuple(dict.fromkeys(queues))
        self._concurrency = concurrency
        self._key, self._tenant, self._tls = key, tenant, tls
        self._lease_s = max(in_seconds(lease), limits.LEASE_S_MIN)
        self._wait_s, self._drain_s = in_seconds(wait), in_seconds(drain)
        self._handlers: dict[str, Handler] = {}
        self._stop: asyncio.Event | None = None
        self._stop_early = False
        self._crew: _Crew | None = None

    def handler(self, type: str) -> Callable[[F], F]:
        """Makes the function run the jobs of this type.

        It takes a payload, converted to what the parameter is annotated with, and a `Context`, or only one of them. A
        plain function runs in a thread. What it returns is the job's result; see `tidewheel.outcomes` for what it may
        raise.
        """

        def register(function: F) -> F:
            self.add_handler(type, function)
            return function

        return register

    def add_handler(self, type: str, function: Function) -> None:
        """Makes the function run the jobs of this type.

        Raises:
            ValueError: if another does already.
        """
        if type in self._handlers:
            raise ValueError(f"there is a handler for {type!r} already")
        self._handlers[type] = Handler.of(function)

    async def run(self, *, burst: bool = False, signals: bool = True) -> None:
        """Works until it is told to stop, by `stop`, SIGTERM or SIGINT; a second signal stops at once.

        Args:
            burst: end when the queues have nothing more.
            signals: listen to signals. Only possible in the main thread.
        """
        self._stop = asyncio.Event()
        if self._stop_early:
            self._stop.set()
        connections = limits.CONNECTIONS_COUNT_MAX + self._concurrency + len(self._queues)
        transport = Transport(
            self.url, key=self._key, tenant=self._tenant, tls=self._tls, connections_count_max=connections
        )
        self._crew = _Crew(self._concurrency, self._handlers, self._stop)
        heard = self._listen() if signals else []
        wait_s = min(self._wait_s, limits.BURST_WAIT_S) if burst else self._wait_s
        takers = [
            _Taker(transport, queue, self.name, self._lease_s, wait_s, self._crew, len(self._queues))
            for queue in self._queues
        ]
        try:
            try:
                await _work(takers, self._stop, burst)
            finally:
                # Also when the server refuses the worker: what runs is not to blame.
                self._stop.set()
                await asyncio.gather(
                    self._crew.drain(self._drain_s),
                    *(taker.hand_back_open(self._drain_s) for taker in takers),
                )
        finally:
            for number in heard:
                asyncio.get_running_loop().remove_signal_handler(number)
            await self._crew.abandon()
            await transport.close()
            self._stop = None
            self._stop_early = False

    def stop(self) -> None:
        """Tells the worker to stop as on SIGTERM; called a second time, at once."""
        if self._stop is None:
            self._stop_early = True
        elif not self._stop.is_set():
            _LOG.info("stopping: no more jobs are taken")
            self._stop.set()
        elif self._crew is not None:
            self._crew.hurry.set()

    def _listen(self) -> list[signal.Signals]:
        loop, heard = asyncio.get_running_loop(), []
        for number in (signal.SIGTERM, signal.SIGINT):
            # Not in the main thread, or not on this system: then `stop` is what is left.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self.stop)
                heard.append(number)
        return heard


async def _work(takers: list[_Taker], stop: asyncio.Event, burst: bool) -> None:
    """Takes jobs until told to stop, or, in a burst, until there are no more."""
    tasks = [asyncio.create_task(taker.run(burst)) for taker in takers]
    stopped = asyncio.create_task(stop.wait())
    try:
        waiting: set[asyncio.Task[object]] = {*tasks, stopped}
        while waiting - {stopped} and not stopped.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a key that is refused ends the worker
    finally:
        for task in (*tasks, stopped):
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)


class _Crew:
    """What a worker holds: what runs, and what waits in line."""

    def __init__(self, concurrency: int, handlers: dict[str, Handler], stop: asyncio.Event) -> None:
        self._concurrency = concurrency
        self._handlers = handlers
        self._stop = stop
        self._line: deque[HeldAttempt] = deque()
        self._running: dict[HeldAttempt, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self.hurry = asyncio.Event()

    @property
    def free(self) -> int:
        """Places nobody has."""
        return self._concurrency - len(self._running) - len(self._line)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        return not self._running and not self._line

    async def change(self) -> None:
        """Waits until something has ended."""
        self._changed.clear()
        await self._changed.wait()

    def add(self, held: HeldAttempt) -> None:
        """Takes a job in: it starts at once, or as soon as there is a place."""
        held.keep()
        self._line.append(held)
        self._start()

    def _start(self) -> None:
        while self._line and len(self._running) < self._concurrency and not self._stop.is_set():
            held = self._line.popleft()
            self._running[held] = asyncio.create_task(self._run(held))

    async def _run(self, held: HeldAttempt) -> None:
        try:
            await held.run(self._handlers.get(held.job.type))
        except Exception:
            _LOG.exception("%s: the worker failed, not the handler", held.job.id)
        finally:
            await held.let_go()
            self._running.pop(held, None)
            self._start()
            self._changed.set()

    async def hand_back(self, jobs: list[HeldAttempt], deadline_s: float) -> None:
        """Lets other workers have jobs that have not started."""
        if not jobs:
            return
        _LOG.info("handing back %d jobs that have not started", len(jobs))
        # A server that is gone must not hold the worker up: then the leases tell.
        telling = {asyncio.create_task(held.tell(HANDED_BACK)) for held in jobs}
        untold = await self._wait(telling, monotonic() + max(deadline_s, limits.CANCEL_GRACE_S))
        if untold and self.hurry.is_set():
            # One that is there hears it in a moment.
            _, untold = await asyncio.wait(untold, timeout=limits.CANCEL_GRACE_S)
        for task in untold:
            task.cancel()
        await asyncio.gather(*untold, return_exceptions=True)
        for held in jobs:
            await held.let_go()

    async def drain(self, deadline_s: float) -> None:
        """Hands back what has not started, and waits for what runs; at the deadline, interrupts it."""
        waiting = list(self._line)
        self._line.clear()
        # Beside what runs, whose time is not to grow with that of a server that does not answer.
        await asyncio.gather(self.hand_back(waiting, deadline_s), self._end_running(deadline_s))

    async def _end_running(self, deadline_s: float) -> None:
        if not self._running:
            return
        _LOG.info("waiting up to %g s for %d jobs that run", deadline_s, len(self._running))
        await self._wait(set(self._running.values()), monotonic() + deadline_s)
        late = list(self._running.items())
        for held, _ in late:
            _LOG.warning("%s is interrupted and handed back: the worker stops", held.job.id)
            held.interrupt("the worker stops")
        if late:
            await asyncio.wait({task for _, task in late}, timeout=2 * limits.CANCEL_GRACE_S)

    async def _wait(self, tasks: set[asyncio.Task[None]], end: float) -> set[asyncio.Task[None]]:
        """Waits for all of them, until a time or until the worker is to stop at once; those that have not ended."""
        hurry = asyncio.create_task(self.hurry.wait())
        left = tasks
        try:
            while left and not self.hurry.is_set() and (rest_s := end - monotonic()) > 0:
                await asyncio.wait({hurry, *left}, timeout=rest_s, return_when=asyncio.FIRST_COMPLETED)
                left = {task for task in left if not task.done()}
        finally:
            hurry.cancel()
        return left

    async def abandon(self) -> None:
        """Leaves whatever is left to its lease; after a failure, or a handler that does not end."""
        left = [*self._running.values()]
        for held in [*self._line, *self._running]:
            await held.let_go()
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


class _Taker:
    """Takes the jobs of one queue."""

    def __init__(
        self,
        transport: Transport,
        queue: str,
        worker: str,
        lease_s: float,
        wait_s: float,
        crew: _Crew,
        takers_count: int,
    ) -> None:
        self._transport = transport
        self._queue = queue
        self._worker = worker
        self._lease_s = lease_s
        self._wait_s = wait_s
        self._crew = crew
        self._takers_count = takers_count
        self._reporter = HttpReporter(transport)
        self._open: asyncio.Task[list[HeldAttempt]] | None = None

    async def run(self, burst: bool) -> None:
        """Takes jobs while there is room; in a burst, until there are no more."""
        waits: Waits | None = None
        while True:
            while self._crew.free <= 0:
                await self._crew.change()
            try:
                # This task is cancelled when the worker stops; the request is not: what it brings is to be handed back.
                self._open = asyncio.create_task(self._take())
                jobs = await asyncio.shield(self._open)
            except TidewheelError as error:
                if isinstance(error, (Unauthorized, Invalid)):
                    raise
                if waits is None:
                    waits = Waits(_UNTIL_BACK)
                    _LOG.warning("queue %s: %s; trying again until it answers", self._queue, error)
                asked = error.retry_after_s if isinstance(error, ApiError) else None
                await asyncio.sleep(waits.next_wait_s(asked) or limits.TAKE_RETRY_LONGEST_WAIT_S)
                continue
            if waits is not None:
                _LOG.info("queue %s: the server answers again", self._queue)
                waits = None
            self._open = None
            for held in jobs:
                self._crew.add(held)
            if burst and not jobs:
                if self._crew.is_idle:
                    return
                await self._crew.change()

    async def hand_back_open(self, deadline_s: float) -> None:
        """Hands back what the request that is open brings; it is given up after a moment."""
        request = self._open
        if request is None:
            return
        # Given up while its answer is on the way, it would leave jobs to their leases. On a busy queue the answer comes
        # within the moment; on any other hardly ever at its very end.
        hurry = asyncio.create_task(self._crew.hurry.wait())
        moment_s = min(limits.STOP_TAKE_S, deadline_s)
        try:
            await asyncio.wait({request, hurry}, timeout=moment_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            request.cancel()
        [brought] = await asyncio.gather(request, return_exceptions=True)
        self._open = None
        if not isinstance(brought, BaseException):
            await self._crew.hand_back(brought, deadline_s)

    async def _take(self) -> list[HeldAttempt]:
        # Several queues share the places: each asks for its part, so that what comes at once nearly fits.
        share = -(-self._crew.free // self._takers_count)
        wish = {
            "worker": self._worker,
            "max": max(1, min(share, limits.TAKE_COUNT_MAX)),
            "wait": self._wait_s,
            "lease": self._lease_s,
        }
        path = f"/v1/queues/{quote(self._queue, safe='')}/take"
        call = Call("POST", path, body=to_json(wish), timeout_s=self._wait_s + limits.TAKE_MARGIN_S)
        asked_at = monotonic()
        answer = await self._transport.once(call)
        try:
            jobs = [TakenJob.from_wire(item) for item in answer.body["jobs"]]
        except (KeyError, TypeError, ValueError) as error:
            raise TidewheelError(f"the server's answer cannot be read: {error}") from error
        return [HeldAttempt(job, self._worker, self._reporter, self._lease_s, asked_at) for job in jobs]
