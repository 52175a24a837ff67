"""What the client does when answers are lost or the server asks for patience, against a scripted server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tidewheel import Client, NewJob, Patience, TooManyRequests, Unavailable
from tidewheel.attempt import HttpReporter
from tidewheel.outcomes import Outcome
from tidewheel.patience import Waits
from tidewheel.testing import made_up_job

QUICK = Patience(first_wait_s=0.001, longest_wait_s=0.01, total_wait_s=30.0)
SUBMITTED = {"id": "job_1", "duplicate": True, "idempotency_key": "k", "state": "ready", "run_at": None}


class Script:
    """Answers request after request as told, and keeps what it was sent."""

    def __init__(self, *answers: Callable[[web.Request], web.StreamResponse | None]) -> None:
        self.answers = list(answers)
        self.bodies: list[bytes] = []
        self.requests: list[web.Request] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.read())
        self.requests.append(request)
        answer = self.answers.pop(0)(request)
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return answer


def hang_up(_: web.Request) -> None:
    """The request arrived; the answer is lost."""


def say(status: int, body: object, **headers: str) -> Callable[[web.Request], web.Response]:
    def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def problem(status: int, code: str, **headers: str) -> Callable[[web.Request], web.Response]:
    return say(status, {"code": code, "status": status, "title": "t", "detail": "d"}, **headers)


@asynccontextmanager
async def serve(script: Script, patience: Patience = QUICK) -> AsyncIterator[Client]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with Client(f"http://{host}:{port}", patience=patience) as client:
            yield client
    finally:
        await runner.cleanup()


async def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    script = Script(hang_up, hang_up, say(200, SUBMITTED))
    async with serve(script) as client:
        assert (await client.submit("t", {"a": 1})).id == "job_1"
    assert len(script.bodies) == 3
    assert len(set(script.bodies)) == 1
    assert json.loads(script.bodies[0])["idempotency_key"].startswith("py-")


async def test_it_slows_down_when_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        if seconds > 0:  # others yield to the loop
            slept.append(seconds)

    monkeypatch.setattr("tidewheel.transport.asyncio.sleep", sleep)
    script = Script(
        problem(429, "too_many", Retry_After="3"), problem(503, "overloaded", Retry_After="1"), say(200, SUBMITTED)
    )
    async with serve(script) as client:
        await client.submit("t")
    assert len(slept) == 2
    assert slept[0] >= 3
    assert slept[1] >= 1


async def test_patience_ends() -> None:
    script = Script(*[problem(429, "too_many", Retry_After="60")] * 2)
    async with serve(script) as client:
        with pytest.raises(TooManyRequests) as refusal:
            await client.submit("t")
    assert refusal.value.retry_after_s == 60
    assert len(script.bodies) == 1

    brief = Patience(first_wait_s=0.001, longest_wait_s=0.001, total_wait_s=0.004)
    script = Script(*[problem(503, "draining")] * 100)
    async with serve(script, brief) as client:
        with pytest.raises(Unavailable, match="gave up after") as stopping:
            await client.submit("t")
    assert stopping.value.tries == len(script.bodies) > 1


async def test_other_refusals_are_not_repeated() -> None:
    script = Script(problem(500, "internal"), say(200, SUBMITTED))
    async with serve(script) as client:
        with pytest.raises(Exception, match="internal"):
            await client.submit("t")
    assert len(script.bodies) == 1


async def test_what_must_not_get_lost_is_repeated_after_any_fault() -> None:
    script = Script(problem(500, "internal"), problem(507, "full"), say(200, {}))
    async with serve(script) as client:
        await HttpReporter(client._transport).outcome(made_up_job(), Outcome("succeeded"))
    assert len(script.bodies) == 3
    assert len(set(script.bodies)) == 1


async def test_a_change_is_repeated_under_its_key() -> None:
    made = {"job_id": "job_1", "schedule_id": "sch_1", "state": "ready", "run_at": "2030-01-01T00:00:00.000Z"}
    script = Script(hang_up, problem(503, "overloaded"), say(201, made))
    async with serve(script) as client:
        assert (await client.schedules.trigger("sch_1")).job_id == "job_1"
    keys = {request.headers["Idempotency-Key"] for request in script.requests}
    assert (len(script.requests), len(keys)) == (3, 1)


async def test_every_change_carries_a_key() -> None:
    job = {"code": "x", "status": 404, "title": "", "detail": ""}
    script = Script(*[say(404, job)] * 5)
    async with serve(script) as client:
        for call in (
            client.cancel("job_1"),
            client.amend("job_1", priority="low"),
            client.dead_letters.discard("job_1"),
            client.schedules.pause("sch_1"),
            client.schedules.create(every="1h"),
        ):
            with pytest.raises(Exception, match="404"):
                await call
    keys = [request.headers["Idempotency-Key"] for request in script.requests]
    assert len(set(keys)) == 5


async def test_credentials_are_shown() -> None:
    script = Script(say(200, {"count": 0, "complete": True}))
    async with serve(script) as client, Client(client.url, key="twk_secret", tenant="acme") as keyed:
        await keyed.count()
    headers = script.requests[0].headers
    assert (headers["Authorization"], headers["Tidewheel-Tenant"]) == ("Bearer twk_secret", "acme")


def test_waits_double_with_jitter_up_to_the_longest_and_end_at_the_total() -> None:
    waits = Waits(Patience(first_wait_s=1.0, longest_wait_s=4.0, total_wait_s=100.0))
    found = [waits.next_wait_s() for _ in range(6)]
    for wait, own in zip(found, (1, 2, 4, 4, 4, 4), strict=True):
        assert wait is not None
        assert own / 2 <= wait <= own
    assert waits.next_wait_s(1_000.0) is None
    assert Waits(Patience.none()).next_wait_s() is None


async def test_what_a_busy_server_turns_away_of_a_batch_is_sent_again_alone() -> None:
    error = {"code": "overloaded", "status": 503, "title": "t", "detail": "d"}
    first = say(201, {"jobs": [{"id": "job_1", "duplicate": False}, {"error": error}]})
    script = Script(first, say(201, {"jobs": [{"id": "job_2", "duplicate": False}]}))
    async with serve(script) as client:
        answers = await client.submit_many([NewJob("a"), NewJob("b", priority="low")])
    assert [answer.id for answer in answers] == ["job_1", "job_2"]
    sent, again = (json.loads(body) for body in script.bodies)
    assert again == sent[1:]
