"""A batcher: single submissions made at about the same time travel together.

A web server that submits one job per request sends one HTTP request per few hundred jobs this way, and waits, instead
of growing, when the server is slower than its callers.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import limits
from .errors import TidewheelError
from .models import Json, NewJob, Submitted
from .transport import new_key

if TYPE_CHECKING:
    from .client import Client


class Batcher:
    """Gathers single submissions into batches.

    ```python
    async with Batcher(client) as batcher:
        submitted = await batcher.submit("send-email", {"to": "a@example.com"})
    ```

    Args:
        client: what sends the batches. It is not closed with the batcher.
        linger_s: how long a job waits for company.
        batch_count_max: jobs sent in one request.
        batches_concurrent_max: requests under way at a time.
        waiting_count_max: jobs that wait or are under way; submitting one more waits for room.
    """

    def __init__(
        self,
        client: Client,
        *,
        linger_s: float = limits.BATCHER_LINGER_S,
        batch_count_max: int = limits.BATCH_COUNT_MAX,
        batches_concurrent_max: int = limits.BATCHES_CONCURRENT_MAX,
        waiting_count_max: int = limits.BATCHER_WAITING_COUNT_MAX,
    ) -> None:
        self._client = client
        self._linger_s = linger_s
        self._batch_count_max = min(batch_count_max, limits.BATCH_COUNT_MAX)
        self._room = asyncio.Semaphore(waiting_count_max)
        self._lanes = asyncio.Semaphore(batches_concurrent_max)
        self._waiting: dict[asyncio.Future[Submitted], tuple[str, bytes]] = {}
        self._came = asyncio.Event()
        self._full = asyncio.Event()
        self._closing = False
        self._gatherer: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Batcher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def submit(self, type: str, payload: Json = None, **options: Any) -> Submitted:
        """Submits one job, in company; the options are the fields of `NewJob`.

        Raises:
            ApiError: this job was refused; others that travelled with it are not concerned.
            Unreachable: no answer came.
        """
        return await self.submit_job(NewJob(type, payload, **options))

    async def submit_job(self, job: NewJob) -> Submitted:
        """Submits one job that was put together before."""
        if self._closing:
            raise TidewheelError("the batcher is closed")
        key = job.idempotency_key or new_key()
        item = job.to_wire(key)
        async with self._room:
            if self._closing:
                raise TidewheelError("the batcher is closed")
            if self._gatherer is None:
                self._gatherer = asyncio.create_task(self._gather())
            answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
            self._waiting[answer] = (key, item)
            self._came.set()
            if len(self._waiting) >= self._batch_count_max:
                self._full.set()
            try:
                return await answer
            finally:
                # Whoever stops waiting takes its job along: left here, it would take up more than there is room for.
                self._waiting.pop(answer, None)

    async def close(self) -> None:
        """Sends what waits, and returns when all of it is answered."""
        self._closing = True
        self._came.set()
        self._full.set()
        if self._gatherer is not None:
            await self._gatherer
        if self._sending:
            await asyncio.wait(self._sending)

    async def _gather(self) -> None:
        while self._waiting or not self._closing:
            await self._came.wait()
            if not self._closing and len(self._waiting) < self._batch_count_max:
                self._full.clear()
                try:
                    await asyncio.wait_for(self._full.wait(), self._linger_s)
                except asyncio.TimeoutError:
                    pass
            # While all lanes are busy more jobs gather: the slower the server, the larger the batches.
            await self._lanes.acquire()
            batch = self._next_batch()
            if not self._waiting and not self._closing:
                self._came.clear()
            if not batch:
                self._lanes.release()
                continue
            task = asyncio.create_task(self._send(batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    def _next_batch(self) -> list[tuple[str, bytes, asyncio.Future[Submitted]]]:
        batch: list[tuple[str, bytes, asyncio.Future[Submitted]]] = []
        seen: list[asyncio.Future[Submitted]] = []
        size = 0
        for answer, (key, item) in self._waiting.items():
            if batch and (len(batch) == self._batch_count_max or size + len(item) > limits.BATCH_BYTES_MAX):
                break
            seen.append(answer)
            # Whoever asked for it may just have stopped waiting; then it is not sent.
            if not answer.done():
                batch.append((key, item, answer))
                size += len(item) + 1
        for answer in seen:
            del self._waiting[answer]
        return batch

    async def _send(self, batch: list[tuple[str, bytes, asyncio.Future[Submitted]]]) -> None:
        try:
            answers = await self._client._submit_batch([(key, item) for key, item, _ in batch])
        except BaseException as error:
            for _, _, waiter in batch:
                if not waiter.done():
                    waiter.set_exception(TidewheelError(f"the batch was not sent: {error!r}"))
            raise
        finally:
            self._lanes.release()
        for (_, _, waiter), answer in zip(batch, answers, strict=True):
            if waiter.done():
                continue
            if isinstance(answer, TidewheelError):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)
