"""The batcher: company, order, backpressure, single refusals."""

from __future__ import annotations

import asyncio

import pytest

from tidewheel import Batcher, Client, Invalid, NewJob, Submitted, TidewheelError


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


async def test_closing_sends_what_waits(client: Client, queue: str) -> None:
    batcher = Batcher(client, linger_s=60)
    job = asyncio.create_task(batcher.submit_job(NewJob("t", queue=queue, delay="1h")))
    await asyncio.sleep(0)
    await batcher.close()
    assert (await job).id.startswith("job_")
    with pytest.raises(TidewheelError, match="closed"):
        await batcher.submit("t")
