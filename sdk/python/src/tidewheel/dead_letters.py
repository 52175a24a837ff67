"""Dead letters: jobs that were given up, and wait to be replayed or discarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from .encoding import to_json
from .filters import Filter, JobFilter, read_bulk, write_body, write_query
from .models import Bulk, Job, Json, Page, Target, compact, wire_duration, wire_time
from .times import Duration, Time
from .transport import Call, Transport, new_key


class _Unchanged:
    """Stands for a payload that is not given: `None` is one too."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = _Unchanged()
"""The payload as it is."""


class DeadLetters:
    """The dead letters of a tenant; `client.dead_letters`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        with_payload: bool = False,
        **filter: JobFilter,
    ) -> Page[Job]:
        """A page of dead letters, latest first. See `Filter` for what can be asked for (not `state`)."""
        query = write_query(filter, limit=limit, cursor=cursor, payload="true" if with_payload else None)
        answer = await self._transport.send(Call("GET", "/v1/dead-letters", query=query))
        return Page([Job.from_wire(item) for item in answer.body["items"]], answer.body["next_cursor"])

    async def replay(
        self,
        id: str,
        *,
        payload: Json = UNCHANGED,
        target: Target | str | None = None,
        run_at: Time | None = None,
        delay: Duration | None = None,
    ) -> Job:
        """Runs a dead letter again, with another payload or target if one is given."""
        to = Target(target) if isinstance(target, str) else target
        body: dict[str, Any] = compact(
            target=None if to is None else to.to_wire(), run_at=wire_time(run_at), delay=wire_duration(delay)
        )
        if payload is not UNCHANGED:
            body["payload"] = payload
        path, headers = f"/v1/dead-letters/{quote(id, safe='')}/replay", {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("POST", path, body=to_json(body), headers=headers))
        return Job.from_wire(answer.body)

    async def replay_many(
        self,
        *,
        ids: Sequence[str] | None = None,
        filter: Filter | None = None,
        cursor: str | None = None,
        rate: float | None = None,
        run_at: Time | None = None,
    ) -> Bulk:
        """Runs many dead letters again, `rate` a second. With a `next_cursor`, call again."""
        body = write_body(ids, filter, cursor, rate=rate, run_at=wire_time(run_at))
        headers = {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("POST", "/v1/dead-letters/replay", body=body, headers=headers))
        return read_bulk(answer.body)

    async def discard(self, id: str) -> None:
        """Drops a dead letter for good."""
        path, headers = f"/v1/dead-letters/{quote(id, safe='')}", {"Idempotency-Key": new_key()}
        await self._transport.send(Call("DELETE", path, headers=headers))

    async def discard_many(self, *, filter: Filter | None = None, all: bool = False, cursor: str | None = None) -> Bulk:
        """Drops the dead letters of a filter for good, or, said in so many words, all of them."""
        parts = {} if filter is None else {name: value for name, value in vars(filter).items() if value is not None}
        query = write_query(parts, cursor=cursor, all="true" if all else None)
        headers = {"Idempotency-Key": new_key()}
        answer = await self._transport.send(Call("DELETE", "/v1/dead-letters", query=query, headers=headers))
        return read_bulk(answer.body)
