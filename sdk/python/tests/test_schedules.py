"""Schedules and dead letters against a real server."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from waiting import until_state

from tidewheel import Client, Conflict, Fail, Filter, Invalid, NotFound, StaleVersion, Worker


async def test_a_schedule_lives(client: Client, queue: str) -> None:
    name = f"report-{queue}"
    made = await client.schedules.create(
        name=name, cron_expr="0 9 * * MON-FRI", timezone="America/New_York", queue=queue, payload={"team": "ops"}
    )
    assert (made.state, made.duplicate, made.name) == ("active", False, name)
    assert made.next_fire_at is not None
    assert (await client.schedules.get(made.id)).payload == {"team": "ops"}
    found = await client.schedules.find(name)
    assert found is not None
    assert found.id == made.id
    assert await client.schedules.find("nothing-of-this-name") is None

    put = await client.schedules.put(name, every=timedelta(hours=2), queue=queue, note="changed")
    assert (put.id, put.every, put.cron_expr) == (made.id, timedelta(hours=2), None)
    patched = await client.schedules.patch(made.id, if_version=put.version, note="again", window="60s")
    assert (patched.note, patched.window) == ("again", timedelta(seconds=60))
    with pytest.raises(StaleVersion):
        await client.schedules.patch(made.id, if_version=put.version, note="too late")
    assert (await client.schedules.patch(made.id, note=None)).note is None

    assert (await client.schedules.pause(made.id)).paused
    assert not (await client.schedules.resume(made.id)).paused
    fires = await client.schedules.next(made.id, count=3)
    assert fires[1].fire_at - fires[0].fire_at == timedelta(hours=2)

    triggered = await client.schedules.trigger(made.id)
    assert (await client.get(triggered.job_id)).schedule_id == made.id
    firings = await client.schedules.firings(made.id)
    assert [firing.outcome for firing in firings.items if firing.job_id == triggered.job_id] == ["triggered"]
    assert made.id in [schedule.id async for schedule in client.schedules.iterate(name=name)]

    await client.schedules.delete(made.id)
    with pytest.raises(NotFound):
        await client.schedules.get(made.id)


async def test_a_preview_shows_the_change_of_clocks(client: Client) -> None:
    fires = await client.schedules.preview(
        cron_expr="30 2 * * *",
        timezone="America/New_York",
        since=datetime(2026, 3, 7, tzinfo=timezone.utc),
        count=2,
    )
    assert [(fire.fire_at.isoformat(), fire.note) for fire in fires] == [
        ("2026-03-07T07:30:00+00:00", None),
        ("2026-03-08T07:00:00+00:00", "dst_gap"),
    ]
    with pytest.raises(Invalid) as refusal:
        await client.schedules.preview(cron_expr="0 0 30 2 *")
    assert refusal.value.code == "invalid_cron"


async def test_a_stretch_is_made_up_for_once(client: Client, queue: str) -> None:
    schedule = await client.schedules.create(every="1h", queue=queue, start_at="2026-01-01T00:00:00Z")
    since = datetime(2026, 1, 1, tzinfo=timezone.utc)
    made = await client.schedules.backfill(schedule.id, since=since, until=since + timedelta(hours=5))
    assert (made.count, made.duplicates, made.next_from) == (6, 0, None)
    again = await client.schedules.backfill(schedule.id, since=since, until=since + timedelta(hours=5))
    assert (again.count, again.duplicates) == (0, 6)
    await client.schedules.delete(schedule.id)


async def test_dead_letters_are_replayed_and_discarded(client: Client, queue: str) -> None:
    worker = Worker(client.url, queues=[queue], wait="1s")

    @worker.handler("fragile")
    async def fragile(payload: dict[str, str]) -> None:
        if "bad" in payload:
            raise Fail("it cannot be")

    jobs = [await client.submit("fragile", {"bad": "yes"}, queue=queue) for _ in range(3)]
    await worker.run(burst=True)
    first, second, third = [job.id for job in jobs]
    dead = await client.dead_letters.list(queue=queue)
    assert {job.id for job in dead.items} == {first, second, third}
    assert dead.items[0].last_error == "it cannot be"

    await client.dead_letters.replay(first, payload={"good": "yes"})
    await worker.run(burst=True)
    await until_state(client, first, "succeeded")
    with pytest.raises(Conflict, match="not_a_dead_letter"):
        await client.dead_letters.replay(first)

    assert (await client.dead_letters.replay_many(ids=[second])).count == 1
    await worker.run(burst=True)
    await until_state(client, second, "dead")
    await client.dead_letters.discard(second)
    assert (await client.dead_letters.discard_many(filter=Filter(queue=queue))).count == 1
    assert (await client.dead_letters.list(queue=queue)).items == []
