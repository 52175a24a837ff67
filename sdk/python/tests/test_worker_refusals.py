"""Outcomes that the server would not take: they are made to fit, or end the attempt; the work is not done again."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from waiting import until_state

from tidewheel import Client, Context, Fail, Invalid, NewJob, Retry, RetryPolicy, Snooze, Worker, limits
from tidewheel.attempt import HeldAttempt
from tidewheel.outcomes import HANDED_BACK, Outcome
from tidewheel.testing import made_up_job

SOON = RetryPolicy(policy="fixed", base="10ms", max_attempts=3)
HALF = "\ud83d"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


async def test_a_delay_is_cut_to_what_the_server_takes(
    client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client.url, queues=[queue])

    @worker.handler("later")
    async def later(what: str) -> None:
        match what:
            case "retry":
                raise Retry("later", after=timedelta(days=30))
            case "delay":
                raise Snooze(delay=timedelta(days=30))
            case "until":
                raise Snooze(until=datetime.now(timezone.utc) + timedelta(days=30))
            case _:
                raise Retry("earlier", after=timedelta(hours=-1))

    kinds = ("retry", "delay", "until", "past")
    jobs = await client.submit_many(NewJob("later", kind, queue=queue, max_attempts=2) for kind in kinds)
    with caplog.at_level(logging.WARNING, "tidewheel.handler"):
        await worker.run(burst=True)
    *long, past = jobs
    for job in long:
        now = await until_state(client, job.id, "retrying", "scheduled")
        assert timedelta(days=6) < now.run_at - datetime.now(timezone.utc) <= timedelta(days=7)
        assert now.attempt == 1
    assert caplog.text.count("it is run again in 7 days") == 3
    assert (await client.get(past.id)).last_error == "earlier"


async def test_a_result_that_cannot_be_kept_is_left_out(
    client: Client, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker(client.url, queues=[queue])
    starts: list[str] = []

    class Unwilling:
        def model_dump(self, mode: str) -> object:
            raise KeyError("a field")

    results: dict[str, Any] = {
        "deepest": nested(128),
        "too deep": nested(129),
        "far too deep": nested(100_000),
        "half a character": {"name": HALF},
        "brackets in a text": "[" * 1_000,
        "a model that fails": Unwilling(),
    }

    @worker.handler("result")
    async def result(which: str) -> Any:
        starts.append(which)
        return results[which]

    jobs = await client.submit_many(NewJob("result", which, queue=queue, retry=SOON) for which in results)
    with caplog.at_level(logging.WARNING, "tidewheel.handler"):
        await worker.run(burst=True)
    kept = {}
    for which, job in zip(results, jobs, strict=True):
        kept[which] = (await until_state(client, job.id, "succeeded", "dead")).result
    assert sorted(starts) == sorted(results)
    assert kept.pop("deepest") == results["deepest"]
    assert kept.pop("brackets in a text") == results["brackets in a text"]
    assert set(kept.values()) == {None}
    assert caplog.text.count("the result is not kept") == 4


async def test_an_error_of_any_kind_is_told(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue])
    starts: list[str] = []

    @worker.handler("error")
    async def error(which: str) -> None:
        starts.append(which)
        match which:
            case "megabytes":
                raise Fail("é" * 5_000_000)
            case "half a character":
                raise Fail(f"no {HALF} here")
            case _:
                raise Mute

    kinds = ("megabytes", "half a character", "mute")
    jobs = await client.submit_many(NewJob("error", kind, queue=queue, max_attempts=1) for kind in kinds)
    await worker.run(burst=True)
    errors = [(await until_state(client, job.id, "dead")).last_error for job in jobs]
    assert errors == ["é" * 1_024, "no \\ud83d here", "Mute: an exception that cannot be shown"]
    assert sorted(starts) == sorted(kinds)


@pytest.mark.parametrize(
    ("limit", "raised", "code"),
    [("RESULT_BYTES_MAX", 1_000_000, "payload_too_large"), ("RETRY_DELAY_S_MAX", 1e9, "invalid_value")],
)
async def test_what_the_server_refuses_all_the_same_ends_the_attempt(
    client: Client, queue: str, monkeypatch: pytest.MonkeyPatch, limit: str, raised: float, code: str
) -> None:
    """As if the server's own bounds were closer than those of this package."""
    monkeypatch.setattr(limits, limit, raised)
    worker = Worker(client.url, queues=[queue])
    starts: list[int] = []

    @worker.handler("t")
    async def handle(ctx: Context) -> str:
        starts.append(ctx.attempt)
        if limit == "RETRY_DELAY_S_MAX":
            raise Retry("later", after=timedelta(days=30))
        return "x" * 10_000

    job = await client.submit("t", queue=queue, retry=SOON)
    await worker.run(burst=True)
    dead = await until_state(client, job.id, "dead", "succeeded", "retrying")
    assert (dead.state, dead.attempt, starts) == ("dead", 1, [1])
    assert dead.last_error is not None
    assert "was refused" in dead.last_error
    assert code in dead.last_error


class Picky:
    """Takes nothing but what fails for good."""

    def __init__(self, refusal: Exception) -> None:
        self._refusal = refusal
        self.told: list[Outcome] = []

    async def heartbeat(self, job: object, extend_s: float, progress: Any, timeout_s: float) -> None: ...

    async def outcome(self, job: object, outcome: Outcome) -> None:
        self.told.append(outcome)
        if outcome.status != "failed" or outcome.retryable:
            raise self._refusal


async def test_only_what_was_done_ends_for_a_refusal() -> None:
    picky = Picky(Invalid(422, code="invalid_value", detail="not so"))
    held = HeldAttempt(made_up_job(), "w", picky, 30.0, 0.0)
    await held.tell(Outcome("succeeded"))
    assert [(outcome.status, outcome.retryable) for outcome in picky.told] == [("succeeded", True), ("failed", False)]
    assert picky.told[1].error == "the outcome 'succeeded' was refused: invalid_value (422): not so"
    picky.told.clear()
    await held.tell(HANDED_BACK)
    assert picky.told == [HANDED_BACK]
