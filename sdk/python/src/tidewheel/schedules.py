"""Schedules: made, asked for, changed, previewed, triggered and made up for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from . import limits
from .encoding import to_json
from .models import Page, compact, wire_time
from .schedule_models import (
    Backfilled,
    Fire,
    Firing,
    Schedule,
    ScheduleFields,
    TimeRule,
    Triggered,
    write_schedule,
)
from .times import Time
from .transport import Call, Transport, new_key

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Schedules:
    """The schedules of a tenant; `client.schedules`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, *, name: str | None = None, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Makes a schedule. See `ScheduleFields`; one of `cron_expr` and `every` is needed.

        The key that makes a repeat safe is the `idempotency_key`, or one of the client's own, which is then not part of
        the schedule.
        """
        body = to_json(compact(name=name) | write_schedule(fields))
        headers = {} if "idempotency_key" in fields else {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("POST", "/v1/schedules", body=body, headers=headers))
        return Schedule.from_wire(answer.body)

    async def put(self, name: str, *, if_version: int | None = None, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Makes the schedule of this name, or makes the one there is the same as this: what deployments do."""
        path = f"/v1/schedules/by-name/{quote(name, safe='')}"
        headers = _headers(if_version)
        answer = await self._transport.send(Call("PUT", path, body=to_json(write_schedule(fields)), headers=headers))
        return Schedule.from_wire(answer.body)

    async def get(self, id: str) -> Schedule:
        """The schedule of this id."""
        answer = await self._transport.send(Call("GET", _path(id)))
        return Schedule.from_wire(answer.body)

    async def find(self, name: str) -> Schedule | None:
        """The schedule of this name, if there is one."""
        page = await self.list(name=name)
        return page.items[0] if page.items else None

    async def list(
        self,
        *,
        state: str | Sequence[str] | None = None,
        type: str | None = None,
        name: str | None = None,
        calendar: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        with_payload: bool = True,
    ) -> Page[Schedule]:
        """A page of schedules."""
        states = state if state is None or isinstance(state, str) else ",".join(state)
        payload = None if with_payload else "false"
        query = compact(
            state=states, type=type, name=name, calendar=calendar, limit=limit, cursor=cursor, payload=payload
        )
        answer = await self._transport.send(Call("GET", "/v1/schedules", query=_texts(query)))
        return Page([Schedule.from_wire(item) for item in answer.body["items"]], answer.body["next_cursor"])

    async def patch(self, id: str, *, if_version: int | None = None, **fields: Any) -> Schedule:
        """Changes some fields; `None` takes one away. The fields are `name` and those of `ScheduleFields`.

        With `if_version`, raises `StaleVersion` if the schedule has another one by now.
        """
        body = to_json(write_schedule(fields))
        answer = await self._transport.send(Call("PATCH", _path(id), body=body, headers=_headers(if_version)))
        return Schedule.from_wire(answer.body)

    async def pause(self, id: str, *, if_version: int | None = None) -> Schedule:
        """Stops it firing until it is resumed."""
        answer = await self._transport.send(Call("POST", _path(id, "pause"), headers=_headers(if_version)))
        return Schedule.from_wire(answer.body)

    async def resume(self, id: str, *, if_version: int | None = None) -> Schedule:
        """Lets it fire again."""
        answer = await self._transport.send(Call("POST", _path(id, "resume"), headers=_headers(if_version)))
        return Schedule.from_wire(answer.body)

    async def trigger(self, id: str) -> Triggered:
        """Makes one job of it now, beside its times."""
        call = Call("POST", _path(id, "trigger"), headers=_headers(None))
        return Triggered.from_wire((await self._transport.send(call)).body)

    async def backfill(
        self, id: str, *, since: Time, until: Time | None = None, rate: float | None = None
    ) -> Backfilled:
        """Makes up for the instants of a stretch of time, both ends included; `until` is now by default.

        An instant that was made up for before is not made up for again. With a `next_from`, call again from there.
        """
        times = compact(**{"from": wire_time(since), "to": wire_time(until)}, rate=rate)
        call = Call("POST", _path(id, "backfill"), body=to_json(times), headers=_headers(None))
        return Backfilled.from_wire((await self._transport.send(call)).body)

    async def delete(self, id: str, *, if_version: int | None = None) -> None:
        """Ends and forgets it. Jobs it has made go on."""
        await self._transport.send(Call("DELETE", _path(id), headers=_headers(if_version)))

    async def preview(
        self, *, since: Time | None = None, count: int | None = None, **rule: Unpack[TimeRule]
    ) -> Sequence[Fire]:
        """When a schedule of this rule would fire, after `since` (now by default). Nothing is made."""
        body = write_schedule(rule) | compact(**{"from": wire_time(since)}, count=count)
        answer = await self._transport.send(Call("POST", "/v1/schedules/preview", body=to_json(body)))
        return [Fire.from_wire(item) for item in answer.body["fires"]]

    async def next(self, id: str, *, count: int | None = None) -> Sequence[Fire]:
        """The fires to come."""
        answer = await self._transport.send(Call("GET", _path(id, "next"), query=_texts(compact(count=count))))
        return [Fire.from_wire(item) for item in answer.body["fires"]]

    async def firings(self, id: str, *, limit: int | None = None, cursor: str | None = None) -> Page[Firing]:
        """A page of the ledger, newest first: what became of each nominal instant."""
        query = _texts(compact(limit=limit, cursor=cursor))
        answer = await self._transport.send(Call("GET", _path(id, "firings"), query=query))
        return Page([Firing.from_wire(item) for item in answer.body["items"]], answer.body["next_cursor"])

    async def iterate(self, **filter: Any) -> AsyncIterator[Schedule]:
        """All schedules of a filter (the arguments of `list`), page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=limits.PAGE_COUNT_MAX, cursor=cursor, **filter)
            for schedule in page.items:
                yield schedule
            cursor = page.next_cursor
            if cursor is None:
                return


def _path(id: str, verb: str | None = None) -> str:
    path = f"/v1/schedules/{quote(id, safe='')}"
    return path if verb is None else f"{path}/{verb}"


def _headers(if_version: int | None) -> dict[str, str]:
    headers = {"Idempotency-Key": new_key()}
    if if_version is not None:
        headers["If-Match"] = f'"{if_version}"'
    return headers


def _texts(query: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in query.items()}
