"""Workers that die and stall, and a server that goes away: nothing is lost, and late outcomes are refused."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from waiting import until, until_state

from tidewheel import Client, Context, NewJob, Worker
from tidewheel.testing import Server

PROGRAM = Path(__file__).with_name("faulty_worker.py")


class Process:
    """A worker process, its log, and how to end it."""

    def __init__(self, process: asyncio.subprocess.Process, said: list[str]) -> None:
        self.process = process
        self.said = said

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def worker_process(client: Client, queue: str, name: str, notes: Path) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(PROGRAM), client.url, queue, "3s", name, str(notes), stderr=asyncio.subprocess.PIPE
    )
    said: list[str] = []

    async def read() -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            said.append(line.decode())

    reader = asyncio.create_task(read())
    try:
        yield Process(process, said)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reader


def starts(notes: Path) -> list[tuple[str, int, int, str]]:
    """Every start of a handler: id, attempt, token, worker."""
    if not notes.exists():
        return []
    rows = [line.split() for line in notes.read_text().splitlines()]
    return [(row[0], int(row[1]), int(row[2]), row[3]) for row in rows]


async def test_jobs_of_a_killed_worker_are_given_to_another(client: Client, queue: str, tmp_path: Path) -> None:
    notes, hang = tmp_path / "notes", tmp_path / "notes.hang"
    hang.touch()
    jobs = await client.submit_many(NewJob("t", {"hang": "first"}, queue=queue) for _ in range(200))
    async with worker_process(client, queue, "first", notes) as first:
        await until(lambda: len({id for id, *_ in starts(notes)}) == 200, "the first worker to hold all jobs")
        first.signal(signal.SIGKILL)
        await first.process.wait()
    before = starts(notes)
    tokens = {id: token for id, _, token, _ in before}
    async with worker_process(client, queue, "second", notes):

        async def all_done() -> bool:
            return (await client.count(queue=queue, state="succeeded")).count == 200

        await until(all_done, "every job to be done")
    after = starts(notes)[len(before) :]
    assert {id for id, *_ in after} == set(tokens) == {job.id for job in jobs}
    for id, attempt, token, name in after:
        assert (attempt >= 2, token > tokens[id], name) == (True, True, "second")
    for job in jobs[::50]:
        assert (await client.get(job.id)).result == "second"
        assert (await client.attempts(job.id))[0].state in ("lease_expired", "lost")


async def test_a_late_outcome_is_refused_and_told(client: Client, queue: str, tmp_path: Path) -> None:
    notes, hang = tmp_path / "notes", tmp_path / "notes.hang"
    hang.touch()
    jobs = await client.submit_many(NewJob("t", {"hang": "sleeper"}, queue=queue) for _ in range(50))
    ids = {job.id for job in jobs}
    async with worker_process(client, queue, "sleeper", notes) as sleeper:
        await until(lambda: {id for id, *_ in starts(notes)} == ids, "the sleeper to hold all jobs")
        sleeper.signal(signal.SIGSTOP)
        async with worker_process(client, queue, "other", notes):

            async def all_done() -> bool:
                return (await client.count(queue=queue, state="succeeded")).count == len(ids)

            await until(all_done, "the other worker to do every job")
            hang.unlink()
            sleeper.signal(signal.SIGCONT)

            def refused() -> set[str]:
                lines = [line for line in sleeper.said if "stale_token" in line and "tidewheel.handler.t" in line]
                return {id for id in ids if any(id in line for line in lines)}

            await until(lambda: refused() == ids, "the sleeper to hear of each job that it is late")
    tokens: dict[str, dict[str, int]] = {"sleeper": {}, "other": {}}
    for id, _, token, name in starts(notes):
        tokens[name][id] = max(token, tokens[name].get(id, 0))
    for id in ids:
        assert tokens["other"][id] > tokens["sleeper"][id]
        assert (await client.get(id)).result == "other"


async def test_a_worker_goes_on_when_the_server_comes_back(own_server: Server, queue: str) -> None:
    worker = Worker(own_server.url, queues=[queue], lease="30s", wait="2s")
    go_on, started = asyncio.Event(), asyncio.Event()

    @worker.handler("held")
    async def held(ctx: Context) -> str:
        started.set()
        await go_on.wait()
        return f"attempt {ctx.attempt}"

    @worker.handler("quick")
    async def quick() -> str:
        return "done"

    task = asyncio.create_task(worker.run(signals=False))
    async with Client(own_server.url) as client:
        before = await client.submit("quick", queue=queue)
        await until_state(client, before.id, "succeeded")
        holding = await client.submit("held", queue=queue)
        await asyncio.wait_for(started.wait(), 60)
        await asyncio.to_thread(own_server.kill)
        go_on.set()  # it ends while nobody is there to hear it
        await asyncio.to_thread(own_server.start)
        after = await client.submit("quick", queue=queue)
        await until_state(client, after.id, "succeeded")
        await until_state(client, holding.id, "succeeded")
        worker.stop()
        await asyncio.wait_for(task, 60)
