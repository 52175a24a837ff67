"""Which jobs are meant: filters in queries and in bodies, and answers about many jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .encoding import to_json
from .errors import from_problem
from .models import Bulk, Done, compact, wire_time
from .times import Time

JobFilter = str | datetime | Sequence[str] | Mapping[str, str] | None
"""The value of one part of a filter; the parts are those of `Filter`."""


@dataclass(frozen=True)
class Filter:
    """Which jobs are meant; what is left out does not matter. Queries take the parts by name."""

    state: str | Sequence[str] | None = None
    type: str | None = None
    queue: str | None = None
    schedule: str | None = None
    """The id of the schedule that made them."""
    labels: Mapping[str, str] | None = None
    since: Time | None = None
    """First set for this instant or later."""
    before: Time | None = None
    """First set for before this instant."""

    def to_wire(self) -> dict[str, Any]:
        """The JSON of it."""
        states = None if self.state is None else _states(self.state)
        labels = None if self.labels is None else dict(self.labels)
        plain = compact(state=states, type=self.type, queue=self.queue, schedule=self.schedule, labels=labels)
        times = {"from": wire_time(self.since), "to": wire_time(self.before)}
        return plain | compact(**times)


def _states(state: str | Sequence[str]) -> list[str]:
    return [state] if isinstance(state, str) else list(state)


def write_query(filter: Mapping[str, Any], **more: object) -> dict[str, str]:
    """A filter, and more parameters, as a query.

    Raises:
        TypeError: if the filter has a part that `Filter` does not know.
    """
    parts = Filter(**filter).to_wire()
    labels = parts.pop("labels", {})
    if "state" in parts:
        parts["state"] = ",".join(parts["state"])
    parts |= {f"label.{key}": value for key, value in labels.items()}
    return {name: str(value) for name, value in (parts | compact(**more)).items()}


def write_body(ids: Sequence[str] | None, filter: Filter | None, cursor: str | None = None, **more: object) -> bytes:
    """What a call on many jobs takes: ids or a filter, and more.

    Raises:
        ValueError: if both or neither are given.
    """
    if (ids is None) == (filter is None):
        raise ValueError("say which jobs: either ids or a filter")
    which: dict[str, Any] = {"ids": list(ids)} if ids is not None else {}
    if filter is not None:
        which["filter"] = filter.to_wire()
    return to_json(which | compact(cursor=cursor, **more))


def read_bulk(body: Mapping[str, Any]) -> Bulk:
    """Reads what became of many jobs."""
    items = [
        Done(
            id=item["id"],
            ok=item["ok"],
            state=item.get("state"),
            error=from_problem(int(item["error"]["status"]), item["error"]) if "error" in item else None,
        )
        for item in body["items"]
    ]
    return Bulk(body["count"], body["refused"], items, body["next_cursor"])
