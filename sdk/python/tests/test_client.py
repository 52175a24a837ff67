"""The client against a real server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest

from tidewheel import (
    BatchRefused,
    Client,
    Conflict,
    Filter,
    IdempotencyConflict,
    Invalid,
    NewJob,
    NotFound,
    Patience,
    RetryPolicy,
    TidewheelError,
    Unreachable,
)


@dataclass
class Email:
    to: str
    at: datetime


async def test_a_job_is_submitted_read_listed_and_counted(client: Client, queue: str) -> None:
    when = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone.utc)
    submitted = await client.submit(
        "send",
        Email("a@example.com", when),
        run_at=datetime.now(timezone.utc) + timedelta(hours=1),
        queue=queue,
        priority="high",
        retry=RetryPolicy(max_attempts=3, policy="fixed", base="5s"),
        timeout=timedelta(seconds=90),
        labels={"team": "ops"},
    )
    assert (submitted.state, submitted.duplicate) == ("scheduled", False)
    job = await client.get(submitted.id)
    assert job.payload == {"to": "a@example.com", "at": "2030-01-02T03:04:05.678Z"}
    assert (job.priority, job.max_attempts, job.labels) == ("high", 3, {"team": "ops"})
    assert (job.timeout, job.idempotency_key) == (timedelta(seconds=90), submitted.idempotency_key)
    assert job.run_at == submitted.run_at

    page = await client.list(queue=queue, labels={"team": "ops"}, state=["scheduled", "ready"], with_payload=True)
    assert [item.id for item in page.items] == [job.id]
    assert page.items[0].payload == job.payload
    assert (await client.list(queue=queue, state="dead")).items == []
    assert (await client.count(queue=queue)).count == 1
    assert (await client.explain(job.id)).waits_for == "time"
    assert await client.attempts(job.id) == []


async def test_pages_follow_each_other(client: Client, queue: str) -> None:
    await client.submit_many(NewJob("t", n, delay="1h", queue=queue) for n in range(5))
    first = await client.list(queue=queue, limit=2)
    assert len(first.items) == 2
    assert first.next_cursor is not None
    ids = [job.id async for job in client.iterate(queue=queue)]
    assert len(set(ids)) == 5


async def test_jobs_are_changed(client: Client, queue: str) -> None:
    job = await client.submit("t", delay="1h", queue=queue)
    assert (await client.amend(job.id, priority="low")).priority == "low"
    assert (await client.run(job.id)).run_at < datetime.now(timezone.utc) + timedelta(minutes=1)
    assert (await client.cancel(job.id)).state == "cancelled"
    again = await client.retry(job.id, delay="2h")
    assert again.state == "scheduled"
    with pytest.raises(Conflict) as refusal:
        await client.retry(job.id)
    assert refusal.value.code == "job_not_finished"
    many = await client.cancel_many(filter=Filter(queue=queue))
    assert (many.count, many.refused, many.items[0].state) == (1, 0, "cancelled")
    rerun = await client.retry_many(ids=[job.id, "job_00000000000000000000000000"])
    assert (rerun.count, rerun.refused) == (1, 1)
    assert isinstance(rerun.items[1].error, NotFound)


async def test_the_same_key_makes_one_job(client: Client, queue: str) -> None:
    key = f"one-{queue}"
    answers = await asyncio.gather(
        *(client.submit("t", {"n": 1}, queue=queue, delay="1h", idempotency_key=key) for _ in range(50))
    )
    assert len({answer.id for answer in answers}) == 1
    assert sum(not answer.duplicate for answer in answers) == 1
    assert (await client.count(queue=queue)).count == 1
    with pytest.raises(IdempotencyConflict):
        await client.submit("t", {"n": 2}, queue=queue, delay="1h", idempotency_key=key)


async def test_many_jobs_go_in_batches_and_are_answered_in_order(client: Client, queue: str) -> None:
    jobs = [NewJob("t", n, queue=queue, delay="1h", idempotency_key=f"{queue}:{n}") for n in range(2_500)]
    answers = await client.submit_many(jobs)
    assert [answer.idempotency_key for answer in answers] == [job.idempotency_key for job in jobs]
    assert len({answer.id for answer in answers}) == 2_500
    again = await client.submit_many(jobs)
    assert [answer.id for answer in again] == [answer.id for answer in answers]
    assert all(answer.duplicate for answer in again)
    assert (await client.get(answers[1_234].id)).payload == 1_234
    assert await client.submit_many([]) == []


async def test_a_refused_job_does_not_stop_the_others(client: Client, queue: str) -> None:
    jobs = [NewJob("t", queue=queue, delay="1h"), NewJob("", queue=queue), NewJob("t", queue=queue, delay="1h")]
    with pytest.raises(BatchRefused, match="1 of 3 jobs") as refusal:
        await client.submit_many(jobs)
    [(place, error)] = refusal.value.refused
    assert place == 1
    assert isinstance(error, Invalid)
    assert (await client.count(queue=queue)).count == 2


async def test_refusals_say_what_is_wrong(client: Client) -> None:
    with pytest.raises(Invalid) as refusal:
        await client.submit("", priority="urgent", delay="soon")  # type: ignore[arg-type]
    assert refusal.value.status == 422
    assert {fault.pointer for fault in refusal.value.errors} == {"/type", "/priority", "/delay"}
    assert "/priority" in str(refusal.value)
    with pytest.raises(NotFound, match="job_not_found"):
        await client.get("job_00000000000000000000000000")
    with pytest.raises(ValueError, match="time zone"):
        await client.submit("t", run_at=datetime(2030, 1, 1))
    with pytest.raises(ValueError, match="either ids or a filter"):
        await client.cancel_many()


async def test_tenants_do_not_see_each_other(server: object, client: Client, queue: str) -> None:
    job = await client.submit("t", queue=queue, delay="1h")
    async with Client(client.url, tenant="other") as other:
        with pytest.raises(NotFound):
            await other.get(job.id)


async def test_a_server_that_is_not_there_is_told() -> None:
    async with Client("http://127.0.0.1:9", patience=Patience.none()) as client:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9") as error:
            await client.get("x")
    assert not error.value.uncertain
    with pytest.raises(TidewheelError, match="closed"):
        await client.get("x")
