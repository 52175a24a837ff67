"""The tools for users' own tests."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidewheel import Client, Context, Fail, Retry, Snooze, TidewheelError
from tidewheel.testing import Server, run_handler


@dataclass
class Email:
    to: str


async def test_a_handler_runs_without_a_server() -> None:
    async def handler(email: Email, ctx: Context) -> str:
        ctx.progress(50)
        return f"{email.to} {ctx.attempt} {ctx.labels['k']}"

    ran = await run_handler(handler, {"to": "a@example.com"}, attempt=2, labels={"k": "v"})
    assert (ran.status, ran.result, ran.progress) == ("succeeded", "a@example.com 2 v", [50])


async def test_its_outcome_is_what_a_worker_would_report() -> None:
    async def handler(what: str, ctx: Context) -> None:
        if what == "late":
            await asyncio.Event().wait()
        if what == "retry":
            raise Retry("later", after="5s")
        if what == "called off":
            ctx.raise_if_cancelled()
        if what == "snooze":
            raise Snooze(delay="PT1H30M")
        raise Fail("no")

    ran = await run_handler(handler, "fail")
    assert (ran.status, ran.error, ran.retryable) == ("failed", "no", False)
    ran = await run_handler(handler, "retry")
    assert (ran.retryable, ran.outcome.retry_after_s) == (True, 5.0)
    ran = await run_handler(handler, "snooze")
    assert (ran.status, ran.outcome.retry_after_s) == ("snoozed", 5_400.0)
    ran = await run_handler(handler, "late", timeout="50ms")
    assert ran.error == "timed out after 0.05 s"
    ran = await run_handler(handler, "called off", called_off="no longer wanted")
    assert (ran.status, ran.error) == ("cancelled", "no longer wanted")
    ran = await run_handler(handler, {"not": "a text"})
    assert (ran.status, ran.retryable) == ("failed", False)
    ran = await run_handler(lambda: "plain")
    assert ran.result == "plain"


async def test_a_plain_function_around_an_async_one_is_run_to_its_end() -> None:
    sent: list[str] = []

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @traced
    async def send(to: str, ctx: Context) -> str:
        await asyncio.sleep(0)
        sent.append(to)
        return f"attempt {ctx.attempt}"

    @traced
    async def fails() -> None:
        await asyncio.sleep(0)
        raise Fail("no")

    ran = await run_handler(send, "a@example.com")
    assert (ran.status, ran.result, sent) == ("succeeded", "attempt 1", ["a@example.com"])
    ran = await run_handler(fails)
    assert (ran.status, ran.error, ran.retryable) == ("failed", "no", False)


async def test_a_server_keeps_its_data_over_a_restart_and_leaves_nothing(own_server: Server) -> None:
    data, url = Path(own_server._data), own_server.url
    async with Client(url) as client:
        job = await client.submit("t", delay="1h")
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        assert own_server.url == url
        assert (await client.get(job.id)).state == "scheduled"
    await asyncio.to_thread(own_server.close)
    assert not data.exists()


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TidewheelError, match="--nonsense"):
        Server(data=tmp_path, flags=["--nonsense"]).start()
    monkeypatch.delenv("TIDEWHEEL_BIN")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TidewheelError, match="TIDEWHEEL_BIN"):
        Server(data=tmp_path).start()
