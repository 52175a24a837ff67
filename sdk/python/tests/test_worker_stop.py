"""A worker that is told to stop while jobs are on their way to it: others get them at once, at no cost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from waiting import note_takes, until_state

from tidewheel import Client, Context, Worker
from tidewheel.transport import Answer, Call, Transport

Once = Callable[[Transport, Call], Awaitable[Answer]]


def make_worker(client: Client, queue: str, name: str) -> Worker:
    # What is stranded would be given to others only after this lease, which no test waits for.
    worker = Worker(client.url, queues=[queue], name=name, lease="1h", wait="30s")

    @worker.handler("t")
    async def handle(ctx: Context) -> str:
        return ctx.worker

    return worker


async def run_by_another(client: Client, queue: str, id: str) -> None:
    second = make_worker(client, queue, "second")
    task = asyncio.create_task(second.run(signals=False))
    done = await until_state(client, id, "succeeded", "dead")
    second.stop()
    await asyncio.wait_for(task, 60)
    assert (done.state, done.result) == ("succeeded", "second")
    assert (await client.explain(id)).failures == 0


async def test_an_answer_that_comes_with_the_stop_is_handed_back(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_worker(client, queue, "first")
    once = Transport.once

    async def stopping(self: Transport, call: Call) -> Answer:
        answer = await once(self, call)
        if call.path.endswith("/take") and answer.body["jobs"]:
            first.stop()
            await asyncio.sleep(0.1)  # the stop is dealt with before the answer is
        return answer

    monkeypatch.setattr(Transport, "once", stopping)
    job = await client.submit("t", queue=queue, max_attempts=1)
    await asyncio.wait_for(first.run(signals=False), 60)
    monkeypatch.undo()
    assert [attempt.state for attempt in await client.attempts(job.id)] == ["snoozed"]
    await run_by_another(client, queue, job.id)


async def test_a_job_that_comes_after_the_stop_is_run_by_another(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_worker(client, queue, "first")
    asking = note_takes(monkeypatch)
    task = asyncio.create_task(first.run(signals=False))
    await asyncio.wait_for(asking.wait(), 60)
    first.stop()
    job = await client.submit("t", queue=queue, max_attempts=1)
    # Long before the request for jobs would end by itself, whether a job came or not.
    await asyncio.wait_for(task, 25)
    await run_by_another(client, queue, job.id)


async def test_stopping_twice_gives_the_open_request_up(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidewheel.limits.STOP_TAKE_S", 3_600.0)
    worker = Worker(client.url, queues=[queue], wait="30s", drain="1h")
    asking = note_takes(monkeypatch)
    task = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait_for(asking.wait(), 60)
    worker.stop()
    worker.stop()
    await asyncio.wait_for(task, 25)
