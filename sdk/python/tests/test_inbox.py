"""The inbox on every kind of connection: a duplicate is skipped, a failed attempt leaves no trace."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
from waiting import until, until_state

from tidewheel import Client, Context, Worker, inbox
from tidewheel.inbox import Inbox

POSTGRES = os.environ.get("TIDEWHEEL_TEST_POSTGRES", "")
needs_postgres = pytest.mark.skipif(
    not POSTGRES, reason="TIDEWHEEL_TEST_POSTGRES is not set; scripts/with-postgres does"
)
KINDS = [
    "sqlite3",
    "aiosqlite",
    pytest.param("asyncpg", marks=needs_postgres),
    pytest.param("psycopg", marks=needs_postgres),
]
Open = Callable[[], Any]


@pytest.fixture
def table() -> Inbox:
    return Inbox(f"inbox_{uuid.uuid4().hex[:12]}")


@pytest.fixture(params=KINDS)
async def open_connection(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Opens connections of one kind to the same database."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        kind = request.param
        if kind == "sqlite3":
            plain = sqlite3.connect(tmp_path / "db", isolation_level=None)
            yield plain
            plain.close()
        elif kind == "aiosqlite":
            async with aiosqlite.connect(tmp_path / "db", isolation_level=None) as connection:
                yield connection
        elif kind == "asyncpg":
            native = await asyncpg.connect(POSTGRES)
            yield native
            await native.close()
        else:
            async with await psycopg.AsyncConnection.connect(POSTGRES, autocommit=True) as connection:
                yield connection

    return connect


async def one_value(connection: Any, statement: str) -> Any:
    """The first column of the first row."""
    if hasattr(connection, "fetchval"):
        return await connection.fetchval(statement)
    cursor = connection.execute(statement)
    if not isinstance(connection, sqlite3.Connection):
        cursor = await cursor
    row = cursor.fetchone()
    return (row if isinstance(row, tuple) else await row)[0]


async def test_a_key_is_first_once(open_connection: Open, table: Inbox) -> None:
    async with open_connection() as connection:
        await table.create_table(connection)
        await table.create_table(connection)
        async with table.once(connection, "k") as first:
            assert first
        async with table.once(connection, "k") as first:
            assert not first
        async with table.once(connection, "other") as first:
            assert first
        async with Inbox(table.table, consumer="elsewhere").once(connection, "k") as first:
            assert first


async def test_work_that_fails_takes_its_key_with_it(open_connection: Open, table: Inbox) -> None:
    async with open_connection() as connection:
        await table.create_table(connection)

        async def fail() -> None:
            async with table.once(connection, "k") as first:
                assert first
                raise RuntimeError("half done")

        with pytest.raises(RuntimeError):
            await fail()
        async with table.once(connection, "k") as first:
            assert first


async def test_keys_are_pruned_by_age_a_few_at_a_time(open_connection: Open, table: Inbox) -> None:
    async with open_connection() as connection:
        await table.create_table(connection)
        for n in range(5):
            async with table.once(connection, f"k{n}"):
                pass
        assert await table.prune(connection) == 0
        assert await table.prune(connection, older_than=timedelta(seconds=-1), count_max=3) == 3
        assert await table.prune(connection, older_than=timedelta(seconds=-1)) == 2
        assert await one_value(connection, f"SELECT count(*) FROM {table.table}") == 0


@pytest.mark.parametrize("kind", [pytest.param("asyncpg", marks=needs_postgres)])
async def test_of_two_at_the_same_time_the_second_waits(kind: str, table: Inbox) -> None:
    one, two = await asyncpg.connect(POSTGRES), await asyncpg.connect(POSTGRES)
    watch = await asyncpg.connect(POSTGRES)
    pid = await two.fetchval("SELECT pg_backend_pid()")
    await table.create_table(one)

    async def second() -> bool:
        async with table.once(two, "k") as first:
            return first

    async def waits() -> bool:
        return bool(await watch.fetchval("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1", pid))

    for fails in (True, False):
        try:
            async with table.once(one, "k") as first:
                assert first
                rival = asyncio.create_task(second())
                await until(waits, "the second to wait for the first")
                if fails:
                    raise RuntimeError("half done")
        except RuntimeError:
            assert await rival
            await two.execute(f"DELETE FROM {table.table}")
        else:
            assert not await rival
    for connection in (one, two, watch):
        await connection.close()


@needs_postgres
async def test_in_a_transaction_of_the_callers_the_key_counts_when_it_commits(table: Inbox) -> None:
    connection = await asyncpg.connect(POSTGRES)
    await table.create_table(connection)
    transaction = connection.transaction()
    await transaction.start()
    async with table.once(connection, "k") as first:
        assert first
    await transaction.rollback()
    async with table.once(connection, "k") as first:
        assert first
    await connection.close()


async def until_ended(task: asyncio.Task[Any]) -> BaseException | None:
    """The exception a task ended with."""
    [ended] = await asyncio.gather(task, return_exceptions=True)
    return ended if isinstance(ended, BaseException) else None


CHECKED_AT_THE_END = (
    "PRAGMA foreign_keys = ON",
    "CREATE TABLE parents (id int PRIMARY KEY)",
    "CREATE TABLE children (parent int REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)",
)


@pytest.mark.parametrize("open_connection", ["sqlite3", "aiosqlite"], indirect=True)
async def test_work_whose_commit_is_refused_is_not_done(open_connection: Open, table: Inbox) -> None:
    async with open_connection() as connection:
        await table.create_table(connection)

        async def execute(statement: str) -> None:
            result = connection.execute(statement)
            if not isinstance(connection, sqlite3.Connection):
                await result

        async def work(parent: int) -> bool:
            async with table.once(connection, "k") as first:
                await execute(f"INSERT INTO children VALUES ({parent})")
            return first

        for statement in CHECKED_AT_THE_END:
            await execute(statement)
        with pytest.raises(sqlite3.IntegrityError):
            await work(7)
        assert not connection.in_transaction
        await execute("INSERT INTO parents VALUES (7)")
        assert await work(7)
        assert await one_value(connection, "SELECT count(*) FROM children") == 1


def test_work_whose_commit_is_refused_is_not_done_in_plain_blocks(tmp_path: Path, table: Inbox) -> None:
    connection = sqlite3.connect(tmp_path / "db")
    table.create_table_sync(connection)
    for statement in CHECKED_AT_THE_END:
        connection.execute(statement)

    def work() -> bool:
        with table.once(connection, "k") as first:
            connection.execute("INSERT INTO children VALUES (7)")
        return first

    with pytest.raises(sqlite3.IntegrityError):
        work()
    assert not connection.in_transaction
    connection.execute("INSERT INTO parents VALUES (7)")
    connection.commit()
    assert work()
    connection.close()


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("word", ["BEGIN IMMEDIATE", "COMMIT", "INSERT", "ROLLBACK"])
async def test_a_task_that_is_cancelled_leaves_no_transaction_open(
    tmp_path: Path, table: Inbox, word: str, in_transaction: bool
) -> None:
    """Cancelled while the connection's thread is at a statement, which goes on all the same."""
    if in_transaction:
        word = {"BEGIN IMMEDIATE": "SAVEPOINT", "COMMIT": "RELEASE", "ROLLBACK": "ROLLBACK TO"}.get(word, word)
    loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hold(statement: str) -> None:
        if statement.startswith(word) and not reached.is_set():
            loop.call_soon_threadsafe(reached.set)
            go_on.wait(60)

    async with aiosqlite.connect(tmp_path / "db", isolation_level=None) as connection:
        await table.create_table(connection)
        if in_transaction:
            await connection.execute("BEGIN")
        await connection.set_trace_callback(hold)

        async def work() -> None:
            async with table.once(connection, "k"):
                if word.startswith("ROLLBACK"):
                    raise RuntimeError("half done")

        task = asyncio.create_task(work())
        await asyncio.wait_for(reached.wait(), 60)
        task.cancel()
        go_on.set()
        assert isinstance(await until_ended(task), asyncio.CancelledError)
        assert connection.in_transaction == in_transaction
        kept = word in ("COMMIT", "RELEASE")
        async with table.once(connection, "k") as first:
            assert first != kept


def test_a_table_may_be_in_a_schema(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", isolation_level=None)
    connection.execute(f"ATTACH '{tmp_path / 'other'}' AS app")
    table = Inbox("app.seen")
    for _ in range(2):
        table.create_table_sync(connection)
    with table.once(connection, "k") as first:
        assert first
    assert connection.execute("SELECT key FROM app.seen").fetchall() == [("k",)]
    connection.close()


def test_plain_connections_have_plain_blocks(tmp_path: Path, table: Inbox) -> None:
    connection = sqlite3.connect(tmp_path / "db")
    table.create_table_sync(connection)
    connection.execute("CREATE TABLE effects (n int)")
    connection.execute("INSERT INTO effects VALUES (0)")
    assert connection.in_transaction  # the savepoint is within the caller's own transaction

    def fail() -> None:
        with table.once(connection, "k"):
            connection.execute("INSERT INTO effects VALUES (1)")
            raise RuntimeError("half done")

    with pytest.raises(RuntimeError):
        fail()
    with table.once(connection, "k") as first:
        assert first
    connection.rollback()
    with table.once(connection, "k") as first:
        assert first
    assert connection.execute("SELECT count(*) FROM effects").fetchone() == (0,)
    assert table.prune_sync(connection, older_than=timedelta(seconds=-1)) == 1
    connection.close()


@needs_postgres
def test_plain_psycopg_connections_too(table: Inbox) -> None:
    with psycopg.connect(POSTGRES) as connection:
        table.create_table_sync(connection)
        found = []
        for _ in range(2):
            with table.once(connection, "k") as first:
                found.append(first)
        assert found == [True, False]


async def test_misuse_is_told(table: Inbox) -> None:
    with pytest.raises(TypeError, match="not a connection"):
        await table.create_table(object())
    with pytest.raises(ValueError, match="name of a table"):
        Inbox("x; drop table y")
    async with aiosqlite.connect(":memory:") as connection:
        with pytest.raises(TypeError, match="is async"), table.once(connection, "k"):
            pass


async def test_a_duplicate_delivery_has_one_effect(
    client: Client, queue: str, open_connection: Open, table: Inbox
) -> None:
    """The handler does its work, but the outcome is never heard: the job comes again, and is skipped."""
    effects = f"effects_{table.table}"
    worker = Worker(client.url, queues=[queue])
    found: list[bool] = []

    @worker.handler("charge")
    async def charge(ctx: Context) -> None:
        async with open_connection() as connection, table.once(connection, ctx.idempotency_key) as first:
            found.append(first)
            if first:
                result = connection.execute(f"INSERT INTO {effects} VALUES (1)")
                if not isinstance(connection, sqlite3.Connection):
                    await result
        if ctx.attempt == 1:
            raise ConnectionError("the answer is lost")

    async with open_connection() as connection:
        await table.create_table(connection)
        result = connection.execute(f"CREATE TABLE {effects} (n int)")
        if not isinstance(connection, sqlite3.Connection):
            await result
        job = await client.submit("charge", queue=queue, max_attempts=2)
        await client.explain(job.id)
        task = asyncio.create_task(worker.run(signals=False))
        await until_state(client, job.id, "succeeded", "dead")
        worker.stop()
        await task
        assert found == [True, False]
        assert await one_value(connection, f"SELECT count(*) FROM {effects}") == 1


async def test_threads_use_plain_connections(client: Client, queue: str, tmp_path: Path) -> None:
    path = tmp_path / "db"
    with sqlite3.connect(path) as setup:
        inbox.create_table_sync(setup)
    setup.close()
    worker = Worker(client.url, queues=[queue])
    found: list[tuple[bool, str]] = []

    @worker.handler("t")
    def handle(ctx: Context) -> None:
        connection = sqlite3.connect(path)
        with inbox.once(connection, "the same for all") as first:
            found.append((first, threading.current_thread().name))
        connection.close()

    for _ in range(3):
        await client.submit("t", queue=queue)
    await worker.run(burst=True)
    assert sorted(first for first, _ in found) == [False, False, True]
    assert all(name.startswith("tidewheel-job_") for _, name in found)
