"""The batcher: company, order, backpressure, single refusals."""

from __future__ import annotations

import asyncio
import json

import pytest
from waiting import until

from tidewheel import (
    ApiError,
    Batcher,
    Client,
    Invalid,
    NewJob,
    Patience,
    Submitted,
    TidewheelError,
    TooManyRequests,
)
from tidewheel.transport import Answer, Call, Transport


class Counting(Client):
    """Counts the batches it sends, and can be made to wait before each."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sizes: list[int] = []
        self.open = asyncio.Event()
        self.open.set()

    async def _submit_batch(self, batch):  # type: ignore[no-untyped-def]
        self.sizes.append(len(batch))
        await self.open.wait()
        return await super()._submit_batch(batch)


async def test_single_submissions_travel_together(client: Client, queue: str) -> None:
    async with Counting(client.url) as counting, Batcher(counting, linger_s=0.05) as batcher:
        answers = await asyncio.gather(*(batcher.submit("t", n, queue=queue, delay="1h") for n in range(300)))
        assert len(counting.sizes) < 30
        assert sum(counting.sizes) == 300
        for n in (0, 123, 299):
            assert (await client.get(answers[n].id)).payload == n
    assert (await client.count(queue=queue)).count == 300


async def test_one_refusal_concerns_nobody_else(client: Client, queue: str) -> None:
    async with Batcher(client, linger_s=0.05) as batcher:
        good, bad = await asyncio.gather(
            batcher.submit("t", queue=queue, delay="1h"),
            batcher.submit("", queue=queue),
            return_exceptions=True,
        )
    assert isinstance(good, Submitted)
    assert isinstance(bad, Invalid)


async def test_when_it_is_full_submitting_waits(client: Client, queue: str) -> None:
    async with Counting(client.url) as counting:
        counting.open.clear()
        batcher = Batcher(counting, linger_s=0, waiting_count_max=10, batches_concurrent_max=1)
        jobs = [asyncio.create_task(batcher.submit("t", queue=queue, delay="1h")) for _ in range(25)]
        done, _ = await asyncio.wait(jobs, timeout=0.2)
        assert not done
        held = sum(counting.sizes) + len(batcher._waiting)
        assert held <= 10
        counting.open.set()
        answers = await asyncio.gather(*jobs)
        assert len({answer.id for answer in answers}) == 25
        await batcher.close()


async def test_whoever_stops_waiting_takes_its_job_along(client: Client, queue: str) -> None:
    async with Counting(client.url) as counting:
        counting.open.clear()
        batcher = Batcher(counting, linger_s=0, waiting_count_max=10, batches_concurrent_max=1)
        first = asyncio.create_task(batcher.submit("t", queue=queue, delay="1h"))
        await until(lambda: counting.sizes == [1], "the first job to be under way")
        for _ in range(5):
            jobs = [asyncio.create_task(batcher.submit("t", queue=queue, delay="1h")) for _ in range(9)]
            await asyncio.sleep(0)
            assert len(batcher._waiting) == 9
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            assert not batcher._waiting
        counting.open.set()
        await first
        await batcher.submit("t", queue=queue, delay="1h")
        await batcher.close()
    assert (await client.count(queue=queue)).count == 2


async def test_closing_sends_what_waits(client: Client, queue: str) -> None:
    batcher = Batcher(client, linger_s=60)
    job = asyncio.create_task(batcher.submit_job(NewJob("t", queue=queue, delay="1h")))
    await asyncio.sleep(0)
    await batcher.close()
    assert (await job).id.startswith("job_")
    with pytest.raises(TidewheelError, match="closed"):
        await batcher.submit("t")


class FewAtOnce(Transport):
    """Stands for a server that takes so many jobs at once, and no more than so many in all."""

    def __init__(self, at_once: int, in_all: int = 1_000) -> None:
        super().__init__("http://nowhere")
        self._at_once = at_once
        self._left = in_all
        self.sizes: list[int] = []
        self.patient: list[bool] = []

    async def send(self, call: Call, patience: Patience | None = None) -> Answer:
        jobs = json.loads(call.body or b"")
        self.sizes.append(len(jobs))
        if len(jobs) > self._at_once:
            raise Invalid(422, code="batch_over_limit", detail="send fewer at once")
        if len(jobs) > self._left:
            self.patient.append(patience is None)
            raise TooManyRequests(429, code="too_many_waiting")
        self._left -= len(jobs)
        return Answer(201, {"jobs": [{"id": f"job_{job['payload']}", "duplicate": False} for job in jobs]}, {})


async def submit_together(transport: FewAtOnce, count: int) -> list[Submitted | BaseException]:
    client = Client("http://nowhere")
    client._transport = transport
    async with client, Batcher(client, linger_s=0.05) as batcher:
        jobs = (batcher.submit("t", n) for n in range(count))
        return await asyncio.gather(*jobs, return_exceptions=True)


async def test_a_batch_over_the_limit_is_sent_in_halves() -> None:
    transport = FewAtOnce(at_once=3)
    answers = await submit_together(transport, 10)
    assert [answer.id for answer in answers if isinstance(answer, Submitted)] == [f"job_{n}" for n in range(10)]
    assert transport.sizes == [10, 5, 2, 3, 5, 2, 3]


async def test_one_job_that_is_over_the_limit_is_refused() -> None:
    transport = FewAtOnce(at_once=0)
    answers = await submit_together(transport, 3)
    assert [answer.code for answer in answers if isinstance(answer, ApiError)] == ["batch_over_limit"] * 3
    assert transport.sizes == [3, 1, 2, 1, 1]


async def test_halves_do_not_each_wait_for_room() -> None:
    transport = FewAtOnce(at_once=2, in_all=2)
    answers = await submit_together(transport, 8)
    assert [isinstance(answer, Submitted) for answer in answers] == [True] * 2 + [False] * 6
    assert all(isinstance(answer, TooManyRequests) for answer in answers[2:])
    assert transport.patient == [True, False, False]


async def test_more_jobs_than_may_ever_wait(client: Client, queue: str) -> None:
    limits = b'{"limits": {"waiting": 3}}'
    await client._transport.send(Call("PUT", f"/v1/tenants/{queue}", body=limits))
    async with Client(client.url, tenant=queue, patience=Patience.none()) as small:
        answers = await small.try_submit_many(NewJob("t", n, delay="1h") for n in range(4))
        assert [type(answer) for answer in answers] == [Submitted, Submitted, TooManyRequests, TooManyRequests]
        assert (await small.count()).count == 2
