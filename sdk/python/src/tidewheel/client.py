"""The client: submits jobs, asks for them, changes them.

Every change carries an idempotency key, or is the same done twice as done once, so that it is safe to send it again
after a lost answer; the client does so by itself, for as long as its `Patience` allows, and slows down when told to.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote

from . import limits
from .dead_letters import DeadLetters
from .encoding import to_json
from .errors import ApiError, BatchRefused, TidewheelError, TooManyRequests, from_problem
from .filters import Filter, JobFilter, read_bulk, write_body, write_query
from .models import (
    Attempt,
    Bulk,
    Count,
    Explanation,
    Job,
    Json,
    NewJob,
    Page,
    Priority,
    RetryPolicy,
    Submitted,
    Target,
    compact,
    wire_duration,
    wire_time,
)
from .patience import Patience
from .schedules import Schedules
from .times import Duration, Time
from .tls import Tls
from .transport import Call, Transport, new_key


class Client:
    """Talks to a server.

    ```python
    async with Client() as client:
        job = await client.submit("send-email", {"to": "a@example.com"}, delay="5m")
    ```

    Args:
        url: where the server is; by default what `TIDEWHEEL_URL` says, or `http://127.0.0.1:7400`.
        key: the API key (`twk_…`), if the server asks for one; by default what `TIDEWHEEL_KEY` says.
        tenant: whom to act for, if not for the key's own tenant; by default what `TIDEWHEEL_TENANT` says.
        tls: whom to trust and what to show, if the URL begins with `https://`; see `Tls`.
        patience: how long to keep trying; see `Patience`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        tenant: str | None = None,
        tls: Tls | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._transport = Transport(url, key=key, tenant=tenant, tls=tls, patience=patience)
        self.schedules = Schedules(self._transport)
        """Schedules: what fires again and again."""
        self.dead_letters = DeadLetters(self._transport)
        """Jobs that were given up."""

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._transport.url

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections. The client cannot be used again."""
        await self._transport.close()

    async def submit(
        self,
        type: str,
        payload: Json = None,
        *,
        run_at: Time | None = None,
        delay: Duration | None = None,
        queue: str | None = None,
        target: Target | str | None = None,
        priority: Priority | None = None,
        retry: RetryPolicy | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        expires_at: Time | None = None,
        idempotency_key: str | None = None,
        labels: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Submitted:
        """Submits one job; see `NewJob` for what the arguments mean.

        The answer comes when the job is on disk. The same `idempotency_key` again within 24 h answers with the first
        job and `duplicate` set; with a different job it raises `IdempotencyConflict`.
        """
        job = NewJob(
            type=type,
            payload=payload,
            run_at=run_at,
            delay=delay,
            queue=queue,
            target=target,
            priority=priority,
            retry=retry,
            max_attempts=max_attempts,
            timeout=timeout,
            expires_at=expires_at,
            idempotency_key=idempotency_key,
            labels=labels,
            traceparent=traceparent,
            tracestate=tracestate,
        )
        return await self.submit_job(job)

    async def submit_job(self, job: NewJob) -> Submitted:
        """Submits one job that was put together before."""
        key = job.idempotency_key or new_key()
        answer = await self._transport.send(Call("POST", "/v1/jobs", body=job.to_wire(key)))
        return Submitted.from_wire(answer.body)

    async def submit_many(self, jobs: Iterable[NewJob]) -> list[Submitted]:
        """Submits any number of jobs, in batches, several at a time; the answers are in the order given.

        Raises:
            BatchRefused: some were not taken in; its `answers` tells of every single one.
        """
        answers = await self.try_submit_many(jobs)
        taken = [answer for answer in answers if isinstance(answer, Submitted)]
        if len(taken) < len(answers):
            raise BatchRefused(answers)
        return taken

    async def try_submit_many(self, jobs: Iterable[NewJob]) -> list[Submitted | TidewheelError]:
        """The same as `submit_many`, with an error in the place of each job that was not taken in."""
        keyed = [job if job.idempotency_key else dataclasses.replace(job, idempotency_key=new_key()) for job in jobs]
        room = asyncio.Semaphore(limits.BATCHES_CONCURRENT_MAX)

        async def send(batch: list[tuple[str, bytes]]) -> list[Submitted | TidewheelError]:
            async with room:
                return await self._submit_batch(batch)

        answers = await asyncio.gather(*(send(batch) for batch in _batches(keyed)))
        return [answer for batch in answers for answer in batch]

    async def _submit_batch(self, batch: Sequence[tuple[str, bytes]]) -> list[Submitted | TidewheelError]:
        return await self._send_batch(batch, None)

    async def _send_batch(
        self, batch: Sequence[tuple[str, bytes]], patience: Patience | None
    ) -> list[Submitted | TidewheelError]:
        body = b"[" + b",".join(item for _, item in batch) + b"]"
        call = Call("POST", "/v1/jobs/batch", body=body, query={"partial": "true"})
        try:
            answer = await self._transport.send(call, patience)
        except TidewheelError as error:
            if len(batch) > 1 and isinstance(error, ApiError) and error.code == "batch_over_limit":
                return await self._send_halves(batch, patience)
            return [error] * len(batch)
        items = answer.body["jobs"]
        answers = [_batch_answer(key, item) for (key, _), item in zip(batch, items, strict=True)]
        # Those the server had no room for beside more urgent ones. Alone, they wait for as long as patience lasts.
        shed = [place for place, item in enumerate(items) if item.get("error", {}).get("code") == "overloaded"]
        if shed:
            again = await self._send_batch([batch[place] for place in shed], patience)
            for place, later in zip(shed, again, strict=True):
                answers[place] = later
        return answers

    async def _send_halves(
        self, batch: Sequence[tuple[str, bytes]], patience: Patience | None
    ) -> list[Submitted | TidewheelError]:
        """Sends jobs that are too many for one request: who asked for one of them did not choose the company."""
        middle = len(batch) // 2
        first = await self._send_batch(batch[:middle], patience)
        if any(isinstance(answer, TooManyRequests) for answer in first):
            # There was no room for as long as patience lasts. It is not spent on each part anew.
            patience = Patience.none()
        return [*first, *await self._send_batch(batch[middle:], patience)]

    async def get(self, id: str) -> Job:
        """The job, with its payload."""
        answer = await self._transport.send(Call("GET", f"/v1/jobs/{quote(id, safe='')}"))
        return Job.from_wire(answer.body)

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        with_payload: bool = False,
        **filter: JobFilter,
    ) -> Page[Job]:
        """A page of jobs, latest first. See `Filter` for what can be asked for."""
        query = write_query(filter, limit=limit, cursor=cursor, payload="true" if with_payload else None)
        answer = await self._transport.send(Call("GET", "/v1/jobs", query=query))
        return Page([Job.from_wire(item) for item in answer.body["items"]], answer.body["next_cursor"])

    async def iterate(self, *, with_payload: bool = False, **filter: JobFilter) -> AsyncIterator[Job]:
        """All jobs of a filter, latest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=limits.PAGE_COUNT_MAX, cursor=cursor, with_payload=with_payload, **filter)
            for job in page.items:
                yield job
            cursor = page.next_cursor
            if cursor is None:
                return

    async def count(self, **filter: JobFilter) -> Count:
        """How many jobs there are, in all and by state, or of a filter."""
        answer = await self._transport.send(Call("GET", "/v1/jobs/count", query=write_query(filter)))
        return Count.from_wire(answer.body)

    async def attempts(self, id: str) -> Sequence[Attempt]:
        """The attempts of a job, oldest first."""
        answer = await self._transport.send(Call("GET", f"/v1/jobs/{quote(id, safe='')}/attempts"))
        return [Attempt.from_wire(item) for item in answer.body["items"]]

    async def explain(self, id: str) -> Explanation:
        """Why a job has not run yet: what it waits for, and when it should start."""
        answer = await self._transport.send(Call("GET", f"/v1/jobs/{quote(id, safe='')}/explain"))
        return Explanation.from_wire(answer.body)

    async def cancel(self, id: str) -> Job:
        """Calls a job off, running or not. Its worker is told with the next heartbeat."""
        return await self._change(id, "cancel")

    async def run(self, id: str) -> Job:
        """Starts a waiting job now."""
        return await self._change(id, "run")

    async def retry(self, id: str, *, run_at: Time | None = None, delay: Duration | None = None) -> Job:
        """Runs a job that has ended again."""
        body = to_json(compact(run_at=wire_time(run_at), delay=wire_duration(delay)))
        return await self._change(id, "retry", body)

    async def amend(
        self,
        id: str,
        *,
        run_at: Time | None = None,
        delay: Duration | None = None,
        priority: Priority | None = None,
    ) -> Job:
        """Gives a job that is not running another time or priority."""
        body = to_json(compact(run_at=wire_time(run_at), delay=wire_duration(delay), priority=priority))
        path, headers = f"/v1/jobs/{quote(id, safe='')}", {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("PATCH", path, body=body, headers=headers))
        return Job.from_wire(answer.body)

    async def cancel_many(
        self, *, ids: Sequence[str] | None = None, filter: Filter | None = None, cursor: str | None = None
    ) -> Bulk:
        """Calls many jobs off, by ids or by a filter. With a `next_cursor`, call again."""
        return await self._change_many("cancel", write_body(ids, filter, cursor))

    async def retry_many(
        self,
        *,
        ids: Sequence[str] | None = None,
        filter: Filter | None = None,
        cursor: str | None = None,
        rate: float | None = None,
        run_at: Time | None = None,
    ) -> Bulk:
        """Runs many jobs again, by ids or by a filter (of dead ones, unless it names states), `rate` a second."""
        body = write_body(ids, filter, cursor, rate=rate, run_at=wire_time(run_at))
        return await self._change_many("retry", body)

    async def _change(self, id: str, verb: str, body: bytes | None = None) -> Job:
        path, headers = f"/v1/jobs/{quote(id, safe='')}/{verb}", {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("POST", path, body=body, headers=headers))
        return Job.from_wire(answer.body)

    async def _change_many(self, verb: str, body: bytes) -> Bulk:
        headers = {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("POST", f"/v1/jobs/{verb}", body=body, headers=headers))
        return read_bulk(answer.body)


def _batches(jobs: Iterable[NewJob]) -> list[list[tuple[str, bytes]]]:
    """Cuts jobs into batches that are neither too many nor too large."""
    batches: list[list[tuple[str, bytes]]] = []
    batch: list[tuple[str, bytes]] = []
    size = 0
    for job in jobs:
        key = job.idempotency_key or new_key()
        item = job.to_wire(key)
        if batch and (len(batch) == limits.BATCH_COUNT_MAX or size + len(item) > limits.BATCH_BYTES_MAX):
            batches.append(batch)
            batch, size = [], 0
        batch.append((key, item))
        size += len(item) + 1
    return [*batches, batch] if batch else batches


def _batch_answer(key: str, item: Mapping[str, Any]) -> Submitted | TidewheelError:
    problem = item.get("error")
    if problem is not None:
        return from_problem(int(problem["status"]), problem)
    return Submitted(id=item["id"], duplicate=item["duplicate"], idempotency_key=key)
