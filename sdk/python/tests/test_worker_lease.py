"""Leases as a worker counts them: from when the job was given out, which is not when it was asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from waiting import note_takes, until, until_state

from tidewheel import Client, Context, Invalid, Job, StaleToken, TakenJob, Unreachable, Worker, limits
from tidewheel.attempt import HeldAttempt
from tidewheel.handlers import Handler
from tidewheel.outcomes import Outcome
from tidewheel.testing import made_up_job

LEASE_S = 2.0
TRIES_MAX = 5


async def run_late_job(client: Client, queue: str, asking: asyncio.Event) -> tuple[Job, list[int]]:
    """A job that comes when the request for it is older than its lease: how it ended, and the attempts that started."""
    worker = Worker(client.url, queues=[queue], lease=LEASE_S)
    starts: list[int] = []

    @worker.handler("t")
    async def handle(ctx: Context) -> str:
        starts.append(ctx.attempt)
        return "done"

    task = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait_for(asking.wait(), 60)
    await asyncio.sleep(1.5 * LEASE_S)
    job = await client.submit("t", queue=queue)
    done = await until_state(client, job.id, "succeeded", "dead")
    worker.stop()
    await asyncio.wait_for(task, 60)
    return done, starts


async def test_a_lease_shorter_than_the_wait_for_jobs(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asking = note_takes(monkeypatch)
    # A machine that stands still for as long as the lease loses it; it does not do so every time.
    for n in range(TRIES_MAX):
        caplog.clear()
        asking.clear()
        with caplog.at_level(logging.WARNING, "tidewheel.worker"):
            done, starts = await run_late_job(client, f"{queue}-{n}", asking)
        if done.attempt == 1:
            break
    assert (done.state, done.result, done.attempt) == ("succeeded", "done", 1)
    assert starts == [1]
    assert "lost before it started" not in caplog.text


class Scripted:
    """Answers heartbeats as told, the last one for ever, and keeps what it hears."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = list(answers)
        self.progress: list[Any] = []
        self.outcomes: list[Outcome] = []

    async def heartbeat(self, job: TakenJob, extend_s: float, progress: Any, timeout_s: float) -> None:
        self.progress.append(progress)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            raise answer

    async def outcome(self, job: TakenJob, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


async def run(reporter: Scripted, function: Callable[..., Any], lease_s: float, asked_s_ago: float) -> None:
    held = HeldAttempt(made_up_job(), "w", reporter, lease_s, monotonic() - asked_s_ago)
    held.keep()
    try:
        await asyncio.wait_for(held.run(Handler.of(function)), 60)
    finally:
        await held.let_go()


async def test_a_job_whose_lease_is_in_doubt_starts_once_a_heartbeat_gets_through() -> None:
    heard: list[int] = []
    reporter = Scripted(Unreachable("gone"), Unreachable("gone"), None)

    async def handle() -> None:
        heard.append(len(reporter.progress))

    await run(reporter, handle, lease_s=90.0, asked_s_ago=600.0)
    assert heard == [3]
    assert [outcome.status for outcome in reporter.outcomes] == ["succeeded"]


async def test_a_job_that_was_given_to_another_does_not_start() -> None:
    started: list[int] = []
    reporter = Scripted(StaleToken(409, code="stale_token", detail="the attempt is over"))
    await run(reporter, lambda: started.append(1), lease_s=30.0, asked_s_ago=60.0)
    assert (started, reporter.outcomes, len(reporter.progress)) == ([], [], 1)


async def test_a_job_no_heartbeat_gets_through_for_does_not_start() -> None:
    started: list[int] = []
    reporter = Scripted(Unreachable("gone"))
    await run(reporter, lambda: started.append(1), lease_s=1.0, asked_s_ago=60.0)
    assert (started, reporter.outcomes) == ([], [])


async def test_heartbeats_go_on_for_longer_than_a_lease() -> None:
    reporter = Scripted(None)

    async def handle(ctx: Context) -> None:
        await until(lambda: len(reporter.progress) > limits.HEARTBEATS_PER_LEASE, "more heartbeats than a lease has")
        assert not ctx.cancelled.is_set()

    await run(reporter, handle, lease_s=1.0, asked_s_ago=0.0)
    assert [outcome.status for outcome in reporter.outcomes] == ["succeeded"]


async def test_a_lease_that_is_sure_costs_no_heartbeat() -> None:
    reporter = Scripted(None)
    await run(reporter, lambda: None, lease_s=3_600.0, asked_s_ago=60.0)
    assert (len(reporter.progress), len(reporter.outcomes)) == (0, 1)


async def test_progress_that_is_refused_does_not_cost_the_lease() -> None:
    reporter = Scripted(Invalid(422, code="invalid_value", detail="no"), None)

    async def handle(ctx: Context) -> None:
        ctx.progress({"step": 1})
        await until(lambda: len(reporter.progress) > 1, "a heartbeat after the one that was refused")
        assert not ctx.cancelled.is_set()

    await run(reporter, handle, lease_s=30.0, asked_s_ago=0.0)
    assert reporter.progress == [{"step": 1}, None]
    assert [outcome.status for outcome in reporter.outcomes] == ["succeeded"]
