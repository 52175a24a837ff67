"""A nightly report: a schedule, what it will do when the clocks change, and the worker that runs it.

Run it beside a server (`tidewheel serve`): `python nightly_report.py`. It previews and makes the schedule, makes up for
three nights by hand, and works until nothing is left.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import TypedDict
from zoneinfo import ZoneInfo

from tidewheel import Client, Context, Worker
from tidewheel.schedule_models import TimeRule

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTLY: TimeRule = {"cron_expr": "30 2 * * *", "timezone": "Europe/Berlin"}

worker = Worker(queues=["reports"], concurrency=1)


class Report(TypedDict):
    """Which report is wanted."""

    shop: str


@worker.handler("nightly-report")
async def nightly_report(report: Report, ctx: Context) -> dict[str, str]:
    """Makes the report of the day before `fire_at`: the time it is *for*, however late it runs."""
    day = ctx.fire_at.astimezone(BERLIN).date() - timedelta(days=1)
    for step in ("orders", "returns", "totals"):
        ctx.raise_if_cancelled()
        ctx.progress({"step": step})
    print(f"report of {report['shop']} for {day} ({ctx.idempotency_key.split(':', 1)[1]})")
    return {"day": day.isoformat()}


async def main() -> None:
    """Shows the schedule, makes it, and makes up for three nights."""
    async with Client() as client:
        print("the night the clocks go forward:")
        for fire in await client.schedules.preview(
            since=datetime(2026, 3, 28, tzinfo=timezone.utc), count=3, **NIGHTLY
        ):
            local = fire.fire_at.astimezone(BERLIN)
            print(f"  {local:%a %d %b %H:%M %Z}  {fire.fire_at:%H:%MZ}  {fire.note or ''}".rstrip())
        schedule = await client.schedules.put(
            "nightly-report", **NIGHTLY, queue="reports", payload={"shop": "north"}, overlap="skip"
        )
        print(f"made {schedule.name}: {schedule.cron_expr} in {schedule.timezone}, {schedule.state}")
        made = await client.schedules.backfill(
            schedule.id,
            since=datetime(2026, 10, 24, tzinfo=timezone.utc),
            until=datetime(2026, 10, 26, 23, tzinfo=timezone.utc),
        )
        print(f"making up for {made.count} nights")
        await worker.run(burst=True)
        ledger = await client.schedules.firings(schedule.id)
        for firing in sorted(ledger.items, key=lambda firing: firing.fire_at):
            print(f"  {firing.fire_at:%Y-%m-%d %H:%MZ}  {firing.outcome}  {firing.state}")


if __name__ == "__main__":
    asyncio.run(main())
