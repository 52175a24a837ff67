"""The worker against a real server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from waiting import until, until_state

from tidewheel import Cancelled, Client, Context, Fail, Invalid, NewJob, Retry, RetryPolicy, Snooze, Worker
from tidewheel.transport import Call

SOON = RetryPolicy(policy="fixed", base="10ms", max_attempts=3)


@asynccontextmanager
async def at_work(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that runs beside the test and is stopped after it."""
    task = asyncio.create_task(worker.run(signals=False))
    try:
        yield task
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


@dataclass
class Order:
    number: int
    items: list[str]


async def test_a_handler_gets_its_payload_and_the_facts(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], name="w-facts")
    seen: list[Any] = []

    @worker.handler("order")
    async def order(order: Order, ctx: Context) -> dict[str, int]:
        seen.append((order, ctx))
        return {"shipped": len(order.items)}

    job = await client.submit(
        "order", Order(7, ["a", "b"]), queue=queue, labels={"k": "v"}, idempotency_key=f"order-{queue}"
    )
    async with at_work(worker):
        done = await until_state(client, job.id, "succeeded", "dead")
    assert done.result == {"shipped": 2}
    [(payload, ctx)] = seen
    assert payload == Order(7, ["a", "b"])
    assert (ctx.id, ctx.type, ctx.queue, ctx.attempt) == (job.id, "order", queue, 1)
    assert (ctx.idempotency_key, ctx.labels, ctx.catch_up) == (f"order-{queue}", {"k": "v"}, False)
    assert ctx.fire_at == done.fire_at
    assert ctx.run_at == done.run_at
    assert ctx.token > 0
    assert (await client.attempts(job.id))[0].worker == "w-facts"


async def test_a_handler_knows_the_trace_of_its_attempt(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])

    @worker.handler("traced")
    async def traced(_: Any, ctx: Context) -> list[str | None]:
        return [ctx.traceparent, ctx.tracestate]

    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    parent = f"00-{trace}-00f067aa0ba902b7-01"
    job = await client.submit("traced", queue=queue, traceparent=parent, tracestate="a=1")
    plain = await client.submit("traced", queue=queue)
    async with at_work(worker):
        done = await until_state(client, job.id, "succeeded", "dead")
        without = await until_state(client, plain.id, "succeeded", "dead")
    handed, state = done.result
    assert handed.startswith(f"00-{trace}-")
    assert handed.endswith("-01")
    assert handed != parent
    assert state == "a=1"
    assert without.result == [None, None]


async def test_a_plain_function_runs_in_a_thread(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])

    @worker.handler("sync")
    def sync(payload: dict[str, int], ctx: Context) -> dict[str, Any]:
        ctx.progress({"at": "half"})
        return {"main": threading.current_thread() is threading.main_thread(), **payload}

    @worker.handler("nothing")
    def nothing() -> None: ...

    job = await client.submit("sync", {"n": 1}, queue=queue)
    other = await client.submit("nothing", queue=queue)
    await worker.run(burst=True)
    assert (await until_state(client, job.id, "succeeded")).result == {"main": False, "n": 1}
    await until_state(client, other.id, "succeeded")


async def test_what_a_handler_raises_decides(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])

    @worker.handler("raise")
    async def raises(what: str, ctx: Context) -> str:
        if ctx.attempt > 1:
            return "second time"
        match what:
            case "retry":
                raise Retry("not yet", after=timedelta(hours=1))
            case "fail":
                raise Fail("never")
            case "snooze":
                raise Snooze(until=datetime.now(timezone.utc) + timedelta(hours=1))
            case "cancel":
                raise Cancelled("not wanted")
            case _:
                raise RuntimeError("broken")

    kinds = ("retry", "fail", "snooze", "cancel", "other")
    jobs = await client.submit_many(NewJob("raise", kind, queue=queue, retry=SOON) for kind in kinds)
    ids = dict(zip(kinds, (job.id for job in jobs), strict=True))
    misfit = await client.submit("raise", {"not": "a text"}, queue=queue)
    unknown = await client.submit("unheard-of", queue=queue, max_attempts=1)
    await worker.run(burst=True)

    retry = await until_state(client, ids["retry"], "retrying")
    assert retry.last_error == "not yet"
    assert retry.run_at > datetime.now(timezone.utc) + timedelta(minutes=50)
    fail = await until_state(client, ids["fail"], "dead")
    assert (fail.last_error, fail.attempt) == ("never", 1)
    snooze = await until_state(client, ids["snooze"], "scheduled", "retrying")
    assert (snooze.last_error, (await client.explain(snooze.id)).failures) == (None, 0)
    assert snooze.run_at > datetime.now(timezone.utc) + timedelta(minutes=50)
    await until_state(client, ids["cancel"], "cancelled")
    async with at_work(worker):
        other = await until_state(client, ids["other"], "succeeded")
    assert (other.result, other.attempt) == ("second time", 2)
    assert (await client.attempts(ids["other"]))[0].detail == "RuntimeError: broken"
    dead = await until_state(client, misfit.id, "dead")
    assert dead.last_error is not None
    assert "dict where str" in dead.last_error
    assert "no handler" in str((await until_state(client, unknown.id, "dead")).last_error)


async def test_no_more_run_at_a_time_than_allowed(client: Client, queue: str) -> None:
    second = f"{queue}-b"
    worker = Worker(client.url, queues=[queue, second], concurrency=3, wait="1s")
    running = most = 0

    @worker.handler("busy")
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    await client.submit_many(NewJob("busy", queue=q) for q in (queue, second) for _ in range(15))
    await worker.run(burst=True)
    assert 1 <= most <= 3
    for q in (queue, second):
        assert (await client.count(queue=q, state="succeeded")).count == 15


async def test_progress_is_shown_and_extends_the_lease(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], lease="30s")
    go_on = asyncio.Event()
    starts = 0

    @worker.handler("slow")
    async def slow(ctx: Context) -> None:
        nonlocal starts
        starts += 1
        step = 0
        while not go_on.is_set():
            # Each report goes out with a heartbeat, long before the next one is due.
            step += 1
            ctx.progress({"step": step})
            await asyncio.sleep(0.2)

    job = await client.submit("slow", queue=queue)
    async with at_work(worker):
        first = await until_state(client, job.id, "running")
        assert first.lease_until is not None
        limit = first.lease_until + timedelta(seconds=1)

        async def is_kept() -> bool:
            now = await client.get(job.id)
            return now.lease_until is not None and now.lease_until > limit and now.progress is not None

        await until(is_kept, "the lease to be extended")
        go_on.set()
        await until_state(client, job.id, "succeeded")
    assert starts == 1


async def test_a_cancelled_job_tells_its_handler(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], lease="1s")
    told = asyncio.Event()

    @worker.handler("long")
    async def long(ctx: Context) -> None:
        await ctx.cancelled.wait()
        told.set()
        ctx.raise_if_cancelled()

    job = await client.submit("long", queue=queue)
    async with at_work(worker):
        await until_state(client, job.id, "running")
        await client.cancel(job.id)
        await asyncio.wait_for(told.wait(), 60)
    assert (await client.get(job.id)).state == "cancelled"


async def test_the_time_limit_ends_an_attempt(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])
    interrupted: list[str | None] = []

    @worker.handler("endless")
    async def endless(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.append(ctx.why_cancelled)

    job = await client.submit("endless", queue=queue, timeout="200ms", max_attempts=1)
    await worker.run(burst=True)
    dead = await until_state(client, job.id, "dead")
    assert dead.last_error == "timed out after 0.2 s"
    assert interrupted == ["the time limit of 0.2 s has passed"]


async def test_a_thread_that_does_not_end_keeps_its_place(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], concurrency=1)
    go_on = threading.Event()

    @worker.handler("stuck")
    def stuck() -> None:
        go_on.wait()

    @worker.handler("next")
    def next_one() -> None: ...

    job = await client.submit("stuck", queue=queue, timeout="100ms", max_attempts=1)
    async with at_work(worker):
        await until_state(client, job.id, "dead")
        waiting = await client.submit("next", queue=queue)
        for _ in range(5):
            assert (await client.get(waiting.id)).state in ("scheduled", "ready")
        go_on.set()
        await until_state(client, waiting.id, "succeeded")


async def test_stopping_finishes_what_runs(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], concurrency=2)
    started, go_on = asyncio.Event(), asyncio.Event()

    @worker.handler("t")
    async def handle() -> None:
        started.set()
        await go_on.wait()

    job = await client.submit("t", queue=queue)
    task = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait_for(started.wait(), 60)
    worker.stop()
    late = await client.submit("t", queue=queue)
    go_on.set()
    await asyncio.wait_for(task, 60)
    assert (await client.get(job.id)).state == "succeeded"
    assert (await client.get(late.id)).state in ("scheduled", "ready")


async def test_at_the_deadline_what_runs_is_handed_back(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], drain=0.1)
    started, ended = asyncio.Event(), asyncio.Event()

    @worker.handler("t")
    async def handle(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    job = await client.submit("t", queue=queue)
    task = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait_for(started.wait(), 60)
    worker.stop()
    await asyncio.wait_for(task, 60)
    assert ended.is_set()
    back = await client.get(job.id)
    assert back.state in ("scheduled", "ready")
    assert (await client.explain(job.id)).failures == 0


async def test_what_waits_in_line_is_handed_back(client: Client, queue: str) -> None:
    """Two queues and one place: what the second queue brings waits, and goes back when the worker stops."""
    second = f"{queue}-b"
    worker = Worker(client.url, queues=[queue, second], concurrency=1)
    started: list[str] = []
    go_on = asyncio.Event()

    @worker.handler("t")
    async def handle(ctx: Context) -> None:
        started.append(ctx.id)
        await go_on.wait()

    jobs = [await client.submit("t", queue=q) for q in (queue, second)]
    task = asyncio.create_task(worker.run(signals=False))

    def has_line() -> bool:
        crew = worker._crew
        return crew is not None and len(crew._line) == 1 and len(started) == 1

    await until(has_line, "one job to run and one to wait in line")
    worker.stop()
    go_on.set()
    await asyncio.wait_for(task, 60)
    states = {job.id: (await client.get(job.id)).state for job in jobs}
    assert len(started) == 1
    assert states.pop(started[0]) == "succeeded"
    [other] = states.values()
    assert other in ("scheduled", "ready")


async def test_sigterm_drains(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])
    started = asyncio.Event()

    @worker.handler("t")
    async def handle(ctx: Context) -> None:
        started.set()
        await asyncio.sleep(0.05)

    job = await client.submit("t", queue=queue)
    task = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 60)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 60)
    assert (await client.get(job.id)).state == "succeeded"


async def test_a_result_that_cannot_be_kept_does_not_undo_the_work(
    client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client.url, queues=[queue])

    @worker.handler("big")
    async def big() -> str:
        return "x" * 10_000

    job = await client.submit("big", queue=queue)
    with caplog.at_level(logging.WARNING, "tidewheel.handler"):
        await worker.run(burst=True)
    assert (await until_state(client, job.id, "succeeded")).result is None
    assert "the result is not kept" in caplog.text


async def test_a_number_of_any_length_costs_no_job_beside_it(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])

    @worker.handler("number")
    async def number(payload: int) -> int:
        return payload % 1_000

    async def submit(payload: bytes) -> str:
        body = b'{"type": "number", "queue": "%s", "payload": %s}' % (queue.encode(), payload)
        answer = await client._transport.send(Call("POST", "/v1/jobs", body=body))
        return str(answer.body["id"])

    # Python by itself reads integers of up to 4,300 digits.
    ids = [await submit(b"7" * 60_000), await submit(b"5")]
    await worker.run(burst=True)
    assert [(await until_state(client, id, "succeeded", "dead")).result for id in ids] == [777, 5]
    assert (await client.get(ids[0])).payload == (10**60_000 - 1) // 9 * 7


def test_handlers_are_checked_when_they_are_made() -> None:
    worker = Worker()

    @worker.handler("a")
    async def a(payload: int, ctx: Context) -> None: ...

    with pytest.raises(ValueError, match="already"):
        worker.add_handler("a", a)

    async def three(payload: int, ctx: Context, more: str) -> None: ...

    with pytest.raises(TypeError, match="'more'"):
        worker.add_handler("b", three)
    with pytest.raises(ValueError, match="list"):
        Worker(queues="default")

    class Local: ...

    async def local(payload: Local) -> None: ...

    with pytest.raises(TypeError, match="'Local'"):
        worker.add_handler("c", local)

    class Callable:
        async def __call__(self, payload: int) -> None: ...

    worker.add_handler("d", Callable())
    assert worker._handlers["d"].is_async
    assert worker._handlers["d"].payload_type is int


async def test_a_worker_that_is_refused_ends(client: Client) -> None:
    with pytest.raises(Invalid):
        await Worker(client.url, queues=["not a queue"]).run(signals=False)
