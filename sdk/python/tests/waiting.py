"""Waits for things by looking again and again, up to a deadline that a slow machine keeps too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

import pytest

from tidewheel import Client, Job
from tidewheel.transport import Answer, Call, Transport

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.05

T = TypeVar("T")


async def until(look: Callable[[], T | Awaitable[T]], what: str) -> T:
    """The first true thing `look` finds."""
    end = monotonic() + PATIENCE_S
    while True:
        found = look()
        if asyncio.iscoroutine(found) or isinstance(found, asyncio.Future):
            found = await found
        if found:
            return found  # type: ignore[return-value]
        assert monotonic() < end, f"waited {PATIENCE_S:g} s for {what}"
        await asyncio.sleep(LOOK_EVERY_S)


async def until_state(client: Client, id: str, *states: str) -> Job:
    """The job, once it is in one of the states."""

    async def look() -> Job | None:
        job = await client.get(id)
        return job if job.state in states else None

    job = await until(look, f"{id} to be {' or '.join(states)}")
    assert job is not None
    return job


def note_takes(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set whenever a worker asks for jobs."""
    asking = asyncio.Event()
    once = Transport.once

    async def noting(self: Transport, call: Call) -> Answer:
        if call.path.endswith("/take"):
            asking.set()
        return await once(self, call)

    monkeypatch.setattr(Transport, "once", noting)
    return asking
