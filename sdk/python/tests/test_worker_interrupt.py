"""Handlers that still run when a worker's time to stop is over: what is done is told, the rest is handed back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest

from tidewheel import Context, TakenJob
from tidewheel.attempt import HeldAttempt
from tidewheel.handlers import Handler
from tidewheel.outcomes import HANDED_BACK, Outcome
from tidewheel.testing import made_up_job
from tidewheel.worker import _Crew

NEVER_S = 3_600.0


class Ear:
    """Takes every heartbeat, and keeps outcomes; while it is deaf, those are not answered."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.hears = asyncio.Event()
        self.hears.set()

    async def heartbeat(self, job: TakenJob, extend_s: float, progress: Any, timeout_s: float) -> None: ...

    async def outcome(self, job: TakenJob, outcome: Outcome) -> None:
        await self.hears.wait()
        self.outcomes.append(outcome)


def hold(ear: Ear) -> HeldAttempt:
    return HeldAttempt(made_up_job(timeout=NEVER_S), "w", ear, NEVER_S, monotonic())


async def interrupt(function: Callable[..., Any], started: asyncio.Event, then: Callable[[], None]) -> list[Outcome]:
    """What is told of a handler that is interrupted once it has started."""
    ear = Ear()
    held = hold(ear)
    running = asyncio.create_task(held.run(Handler.of(function)))
    await asyncio.wait_for(started.wait(), 60)
    held.interrupt("the worker stops")
    then()
    await asyncio.wait_for(running, 60)
    return ear.outcomes


@pytest.fixture(autouse=True)
def ample_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidewheel.limits.CANCEL_GRACE_S", NEVER_S)


async def test_what_a_thread_returns_within_the_grace_is_told() -> None:
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def handle() -> str:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(60)
        return "done"

    assert await interrupt(handle, started, go_on.set) == [Outcome("succeeded", result="done")]


async def test_a_thread_that_gives_up_within_the_grace_hands_its_job_back() -> None:
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def handle(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(60)
        ctx.raise_if_cancelled()

    assert await interrupt(handle, started, go_on.set) == [HANDED_BACK]


async def test_a_thread_that_returns_since_it_is_to_stop_hands_its_job_back() -> None:
    loop, started, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def handle(ctx: Context) -> str:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(60)
        return "half of it" if ctx.cancelled.is_set() else "done"

    assert await interrupt(handle, started, go_on.set) == [HANDED_BACK]


async def test_an_async_handler_that_was_interrupted_has_not_succeeded() -> None:
    started = asyncio.Event()

    async def handle() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    assert await interrupt(handle, started, lambda: None) == [HANDED_BACK]


async def test_an_async_handler_that_ends_as_the_worker_stops_has_succeeded() -> None:
    ear = Ear()
    held = hold(ear)

    async def handle() -> str:
        # Right after this handler's last step, before anybody has looked at what it returned.
        asyncio.get_running_loop().call_soon(held.interrupt, "the worker stops")
        return "done"

    await asyncio.wait_for(held.run(Handler.of(handle)), 60)
    assert ear.outcomes == [Outcome("succeeded", result="done")]


async def fill(ear: Ear, ended: asyncio.Event) -> _Crew:
    """A crew with a job that runs until it is interrupted, and one that waits for its place."""
    started, stop = asyncio.Event(), asyncio.Event()

    async def handle() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    crew = _Crew(1, {made_up_job().type: Handler.of(handle)}, stop)
    for _ in range(2):
        crew.add(hold(ear))
    await asyncio.wait_for(started.wait(), 60)
    stop.set()
    return crew


async def test_a_server_that_does_not_answer_gives_handlers_no_more_time() -> None:
    ear, ended = Ear(), asyncio.Event()
    crew = await fill(ear, ended)
    ear.hears.clear()
    draining = asyncio.create_task(crew.drain(0.1))
    await asyncio.wait_for(ended.wait(), 60)
    ear.hears.set()
    await asyncio.wait_for(draining, 60)
    assert ear.outcomes == [HANDED_BACK, HANDED_BACK]


async def test_a_worker_in_a_hurry_does_not_wait_for_a_server_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidewheel.limits.CANCEL_GRACE_S", 0.1)
    ear, ended = Ear(), asyncio.Event()
    crew = await fill(ear, ended)
    ear.hears.clear()
    draining = asyncio.create_task(crew.drain(NEVER_S))
    crew.hurry.set()
    await asyncio.wait_for(draining, 60)
    await crew.abandon()
    assert ended.is_set()
    assert ear.outcomes == []
