"""The inbox: skips duplicate deliveries, within your own database transaction.

Tidewheel delivers at least once: when a worker dies after doing the work and before saying so, the job is delivered
again. An effect outside cannot be taken back; one in your own database can be made to happen once, by writing the job's
idempotency key in the same transaction:

```python
@worker.handler("charge")
async def charge(payload: Charge, ctx: Context) -> None:
    async with pool.acquire() as connection:
        async with inbox.once(connection, ctx.idempotency_key) as first:
            if first:
                await connection.execute("UPDATE accounts SET ...")
```

`once` begins a transaction, or a savepoint in the one you are in, writes the key, and says whether it was new. If the
block raises, the key goes away with everything else. Of two that come at the same time, the second waits for the first
to commit or roll back. In a transaction of yours the key counts when *you* commit.

Connections: asyncpg, psycopg 3 (`AsyncConnection`, and `Connection` with a plain `with`), `sqlite3` (both ways) and
aiosqlite.

Keys are kept until pruned. A duplicate can come as long as a job can be delivered: its retries, and any replay by hand.
`prune` forgets those older than a time (14 days unless told otherwise), a bounded number at once; run it daily, from a
schedule for example.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any

from . import limits

TABLE = "tidewheel_inbox"
"""The table, unless told otherwise."""

RETENTION = timedelta(days=limits.INBOX_RETENTION_DAYS)
"""How long keys are kept, unless told otherwise."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")


@dataclass(frozen=True)
class Inbox:
    """Where processed keys are kept.

    The functions of this module are those of `Inbox()`.
    """

    table: str = TABLE
    """The table, with its schema if it needs one."""
    consumer: str = ""
    """Whose keys they are, where several programs that all handle the same jobs share a table."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.table):
            raise ValueError(f"{self.table!r} is not the name of a table")

    def once(self, connection: Any, key: str) -> Once:
        """Records a key, in a transaction or savepoint that spans the block: `async with`, or `with`.

        The value is whether it is the first time. If not, skip the work: it is done.
        """
        return Once(self, connection, key)

    async def create_table(self, connection: Any) -> None:
        """Makes the table and its index if they are not there."""
        door = _door(connection)
        async with door.transaction():
            for statement in _ddl(self.table, door.is_sqlite):
                await door.execute(statement)

    async def prune(
        self,
        connection: Any,
        *,
        older_than: timedelta = RETENTION,
        count_max: int = limits.INBOX_PRUNE_COUNT_MAX,
    ) -> int:
        """Forgets keys older than this, oldest first, at most so many; says how many it were."""
        door = _door(connection)
        before = datetime.now(timezone.utc) - older_than
        async with door.transaction():
            return await door.execute(*_delete(self, door, before, count_max))

    def create_table_sync(self, connection: Any) -> None:
        """The same as `create_table`, for connections that are not async."""
        door = _sync_door(connection)
        with door.transaction():
            for statement in _ddl(self.table, door.is_sqlite):
                door.execute(statement)

    def prune_sync(
        self,
        connection: Any,
        *,
        older_than: timedelta = RETENTION,
        count_max: int = limits.INBOX_PRUNE_COUNT_MAX,
    ) -> int:
        """The same as `prune`, for connections that are not async."""
        door = _sync_door(connection)
        before = datetime.now(timezone.utc) - older_than
        with door.transaction():
            return door.execute(*_delete(self, door, before, count_max))


class Once:
    """The block in which a key is recorded; made by `once`."""

    def __init__(self, inbox: Inbox, connection: Any, key: str) -> None:
        self._inbox = inbox
        self._connection = connection
        self._key = key
        self._transaction: AbstractAsyncContextManager[None] | None = None
        self._sync_transaction: AbstractContextManager[None] | None = None

    async def __aenter__(self) -> bool:
        door = _door(self._connection)
        transaction = door.transaction()
        await transaction.__aenter__()
        try:
            first = await door.execute(*_insert(self._inbox, door, self._key)) > 0
        except BaseException as error:
            await transaction.__aexit__(type(error), error, error.__traceback__)
            raise
        self._transaction = transaction
        return first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._transaction is not None:
            await self._transaction.__aexit__(kind, error, trace)

    def __enter__(self) -> bool:
        door = _sync_door(self._connection)
        transaction = door.transaction()
        transaction.__enter__()
        try:
            first = door.execute(*_insert(self._inbox, door, self._key)) > 0
        except BaseException as error:
            transaction.__exit__(type(error), error, error.__traceback__)
            raise
        self._sync_transaction = transaction
        return first

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sync_transaction is not None:
            self._sync_transaction.__exit__(kind, error, trace)


_DEFAULT = Inbox()
once = _DEFAULT.once
create_table = _DEFAULT.create_table
prune = _DEFAULT.prune
create_table_sync = _DEFAULT.create_table_sync
prune_sync = _DEFAULT.prune_sync


def _ddl(table: str, is_sqlite: bool) -> list[str]:
    schema, _, name = table.rpartition(".")
    index = f"{name}_recorded_at"
    # SQLite has the schema before the name of the index, PostgreSQL before that of the table.
    indexed = f"{schema}.{index} ON {name}" if is_sqlite and schema else f"{index} ON {table}"
    time = "REAL" if is_sqlite else "timestamptz"
    return [
        f"CREATE TABLE IF NOT EXISTS {table} (consumer text NOT NULL, key text NOT NULL, "
        f"recorded_at {time} NOT NULL, PRIMARY KEY (consumer, key))",
        f"CREATE INDEX IF NOT EXISTS {indexed} (recorded_at)",
    ]


def _insert(inbox: Inbox, door: _Door | _SyncDoor, key: str) -> tuple[str, Any, Any, Any]:
    one, two, three = door.marks
    # The table's name was checked when the inbox was made; a name cannot be a parameter.
    statement = (
        f"INSERT INTO {inbox.table} (consumer, key, recorded_at) VALUES ({one}, {two}, {three}) "  # noqa: S608
        "ON CONFLICT DO NOTHING"
    )
    return statement, inbox.consumer, key, door.time(datetime.now(timezone.utc))


def _delete(inbox: Inbox, door: _Door | _SyncDoor, before: datetime, count_max: int) -> tuple[str, Any, Any, Any]:
    one, two, three = door.marks
    row = "rowid" if door.is_sqlite else "ctid"
    statement = (
        f"DELETE FROM {inbox.table} WHERE {row} IN (SELECT {row} FROM {inbox.table} "  # noqa: S608
        f"WHERE consumer = {one} AND recorded_at < {two} ORDER BY recorded_at LIMIT {three})"
    )
    return statement, inbox.consumer, door.time(before), count_max


class _SyncDoor:
    """A connection that is not async: `sqlite3`, psycopg."""

    def __init__(self, connection: Any, is_sqlite: bool) -> None:
        self.connection = connection
        self.is_sqlite = is_sqlite
        self.marks = ("?", "?", "?") if is_sqlite else ("%s", "%s", "%s")

    def time(self, time: datetime) -> object:
        return time.timestamp() if self.is_sqlite else time

    def execute(self, statement: str, *arguments: Any) -> int:
        return int(self.connection.execute(statement, arguments).rowcount)

    def transaction(self) -> AbstractContextManager[None]:
        if self.is_sqlite:
            return self._sqlite_transaction()
        transaction: AbstractContextManager[None] = self.connection.transaction()
        return transaction

    @contextmanager
    def _sqlite_transaction(self) -> Iterator[None]:
        begin, commit, roll_back = _sqlite_words(self.connection.in_transaction)
        self.connection.execute(begin)
        try:
            yield
            # Refused, for a constraint that is checked at the end for example, it leaves the transaction open.
            self.connection.execute(commit)
        except BaseException:
            self._roll_back(roll_back)
            raise

    def _roll_back(self, words: tuple[str, ...]) -> None:
        try:
            for word in words:
                self.connection.execute(word)
        except sqlite3.Error:
            # Some errors, such as that of a full disk, have rolled back already.
            if self.connection.in_transaction:
                raise


class _Door:
    """A connection as seen by async code. One that is not async is called all the same: it blocks for a moment."""

    def __init__(self, connection: Any, kind: str) -> None:
        self.connection = connection
        self.kind = kind
        self.is_sqlite = kind in ("sqlite3", "aiosqlite")
        marks = {"asyncpg": ("$1", "$2", "$3"), "psycopg": ("%s", "%s", "%s")}
        self.marks = marks.get(kind, ("?", "?", "?"))

    def time(self, time: datetime) -> object:
        return time.timestamp() if self.is_sqlite else time

    async def execute(self, statement: str, *arguments: Any) -> int:
        if self.kind == "asyncpg":
            status: str = await self.connection.execute(statement, *arguments)
            count = status.rsplit(" ", 1)[-1]
            return int(count) if count.isdigit() else -1
        cursor = self.connection.execute(statement, arguments)
        if self.kind != "sqlite3":
            cursor = await cursor
        return int(cursor.rowcount)

    def transaction(self) -> AbstractAsyncContextManager[None]:
        if self.kind == "sqlite3":
            return _as_async(_SyncDoor(self.connection, is_sqlite=True).transaction())
        if self.kind == "aiosqlite":
            return self._aiosqlite_transaction()
        transaction: AbstractAsyncContextManager[None] = self.connection.transaction()
        return transaction

    @asynccontextmanager
    async def _aiosqlite_transaction(self) -> AsyncIterator[None]:
        begin, commit, roll_back = _sqlite_words(self.connection.in_transaction)
        began = await self._see_through(begin)
        if began.cancel is not None and began.failure is None:
            await self._roll_back(roll_back)
        began.raise_if_not_well()
        try:
            yield
        except BaseException:
            await self._roll_back(roll_back)
            raise
        committed = await self._see_through(commit)
        if committed.failure is not None:
            await self._roll_back(roll_back)
        committed.raise_if_not_well()

    async def _roll_back(self, words: tuple[str, ...]) -> None:
        cancel: asyncio.CancelledError | None = None
        for word in words:
            end = await self._see_through(word)
            cancel = cancel or end.cancel
            if end.failure is not None:
                # Some errors, such as that of a full disk, have rolled back already.
                if self.connection.in_transaction:
                    raise end.failure
                break
        if cancel is not None:
            raise cancel

    async def _see_through(self, statement: str) -> _End:
        """Executes a statement and waits for its end, also when cancelled meanwhile.

        The connection's thread goes on with it all the same: left alone, it would begin a transaction nobody ends.
        """
        running = asyncio.ensure_future(self.execute(statement))
        cancel: asyncio.CancelledError | None = None
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError as error:
                cancel = error
        if running.cancelled():  # with all tasks of a loop that ends
            return _End(None, cancel or asyncio.CancelledError())
        return _End(running.exception(), cancel)


@dataclass(frozen=True)
class _End:
    """How a statement ended that was seen through."""

    failure: BaseException | None
    cancel: asyncio.CancelledError | None
    """The task was cancelled meanwhile."""

    def raise_if_not_well(self) -> None:
        if self.cancel is not None:
            raise self.cancel
        if self.failure is not None:
            raise self.failure


@asynccontextmanager
async def _as_async(transaction: AbstractContextManager[None]) -> AsyncIterator[None]:
    with transaction:
        yield


def _sqlite_words(in_transaction: bool) -> tuple[str, str, tuple[str, ...]]:
    """How to begin, commit and roll back: a savepoint inside a transaction, otherwise one that may write at once."""
    if in_transaction:
        name = "tidewheel_inbox"
        return f"SAVEPOINT {name}", f"RELEASE {name}", (f"ROLLBACK TO {name}", f"RELEASE {name}")
    return "BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",)


def _kind(connection: Any) -> str:
    if isinstance(connection, sqlite3.Connection):
        return "sqlite3"
    for kind in type(connection).__mro__:
        package = kind.__module__.split(".", 1)[0]
        if package in ("asyncpg", "psycopg", "aiosqlite"):
            is_async = package != "psycopg" or hasattr(connection, "__aenter__")
            return package if is_async else "psycopg (sync)"
    raise TypeError(f"a {type(connection).__name__} is not a connection of asyncpg, psycopg, sqlite3 or aiosqlite")


def _door(connection: Any) -> _Door:
    kind = _kind(connection)
    if kind == "psycopg (sync)":
        raise TypeError("this connection is not async: use `with` and the functions that end in `_sync`")
    return _Door(connection, kind)


def _sync_door(connection: Any) -> _SyncDoor:
    kind = _kind(connection)
    if kind not in ("sqlite3", "psycopg (sync)"):
        raise TypeError("this connection is async: use `async with`, and await")
    return _SyncDoor(connection, is_sqlite=kind == "sqlite3")
