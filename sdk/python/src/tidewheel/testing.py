"""For your tests: a throw-away server, and handlers run without one.

```python
@pytest.fixture(scope="session")
def server():
    with Server() as server:
        yield server


async def test_with_a_server(server):
    async with Client(server.url) as client: ...


async def test_without_one():
    ran = await run_handler(send_email, {"to": "a@example.com"})
    assert ran.status == "succeeded"
```
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from queue import Empty, Queue
from time import monotonic
from types import TracebackType
from typing import Any

from . import limits
from .attempt import HeldAttempt
from .context import TakenJob
from .errors import TidewheelError
from .handlers import Function, Handler
from .models import Json
from .outcomes import Outcome
from .times import Duration, in_seconds

BINARY_VARIABLE = "TIDEWHEEL_BIN"
"""The environment variable that says where the program `tidewheel` is; otherwise it is looked for on the `PATH`."""


class Server:
    """A server of its own, with nothing in it, gone at the end.

    Args:
        binary: where the program is; by default as `BINARY_VARIABLE` says.
        data: where it keeps everything; by default a folder that is removed at the end.
        flags: more flags of `tidewheel serve`.
    """

    def __init__(self, *, binary: str | None = None, data: str | Path | None = None, flags: Sequence[str] = ()) -> None:
        self._binary = binary or os.environ.get(BINARY_VARIABLE) or shutil.which("tidewheel")
        self._own_data = tempfile.mkdtemp(prefix="tidewheel-test-") if data is None else None
        self._data = str(self._own_data or data)
        self._flags = list(flags)
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        """Where it answers, once it is started."""

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts it, and returns when it listens. Started again, it has the same address and data.

        Raises:
            TidewheelError: if the program is not found or does not start.
        """
        if self._binary is None:
            raise TidewheelError(f"the program tidewheel is not found: set {BINARY_VARIABLE}, or put it on the PATH")
        command = [self._binary, "serve", "--listen", self._listen, "--data", self._data]
        if "--drain" not in self._flags:
            command += ["--drain", "1s"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
        self._process = subprocess.Popen(  # noqa: S603
            [*command, *self._flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        lines: Queue[str] = Queue()
        threading.Thread(target=_read, args=(self._process, lines), daemon=True).start()
        said: list[str] = []
        end = monotonic() + limits.SERVER_START_S_MAX
        while True:
            try:
                line = lines.get(timeout=max(0.0, end - monotonic()))
            except Empty:
                line = ""
            if not line:
                self.kill()
                raise TidewheelError("the server did not start: " + "".join(said))
            said.append(line)
            if "listening on http://" in line:
                break
        self.url = "http://" + line.split("listening on http://", 1)[1].split()[0].rstrip(",")
        self._listen = self.url.removeprefix("http://")

    @property
    def pid(self) -> int | None:
        """Its process."""
        return None if self._process is None else self._process.pid

    def stop(self) -> None:
        """Stops it in order; `start` starts it again."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stops it as a crash would; `start` starts it again."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(limits.SERVER_START_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stops it for good and removes what it kept."""
        self._end(signal.SIGTERM)
        if self._own_data is not None:
            shutil.rmtree(self._own_data, ignore_errors=True)


def _read(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    """Reads what a server says to its end, so that it never waits for a reader; an empty text stands for the end."""
    with process.stderr or open(os.devnull) as stream:
        for line in stream:
            lines.put(line)
    lines.put("")


@dataclass(frozen=True)
class Ran:
    """What came of a handler run without a server."""

    outcome: Outcome
    """What the worker would have reported."""
    progress: list[Any] = field(default_factory=list)
    """The latest progress the handler told, if any."""

    @property
    def status(self) -> str:
        """`succeeded`, `failed`, `snoozed` or `cancelled`."""
        return self.outcome.status

    @property
    def result(self) -> Any:
        """What the handler returned."""
        return self.outcome.result

    @property
    def error(self) -> str | None:
        """What went wrong."""
        return self.outcome.error

    @property
    def retryable(self) -> bool:
        """Whether the job would be tried again."""
        return self.outcome.status == "failed" and self.outcome.retryable


def made_up_job(payload: Json = None, *, type: str = "test", timeout: Duration = 30.0, **facts: Any) -> TakenJob:
    """A job nobody submitted; the facts are the fields of `TakenJob`."""
    now = datetime.now(timezone.utc)
    values: dict[str, Any] = {
        "id": "job_00000000000000000000000000",
        "tenant": "default",
        "attempt": 1,
        "max_attempts": 5,
        "token": 1,
        "idempotency_key": "made-up",
        "fire_at": now,
        "run_at": now,
        "created_at": now,
        "catch_up": False,
        "queue": "default",
        "priority": "normal",
        "labels": {},
    }
    return TakenJob(type=type, payload=payload, timeout=timedelta(seconds=in_seconds(timeout)), **(values | facts))


class _Deaf:
    """Stands for a server that keeps every lease."""

    async def heartbeat(self, job: TakenJob, extend_s: float, progress: Any, timeout_s: float) -> None:
        """Hears nothing."""

    async def outcome(self, job: TakenJob, outcome: Outcome) -> None:
        """Hears nothing."""


async def run_handler(
    function: Function,
    payload: Json = None,
    *,
    called_off: str | None = None,
    labels: Mapping[str, str] | None = None,
    **facts: Any,
) -> Ran:
    """Runs a handler once, as a worker would, on a made-up job: the payload converted, under its time limit.

    Args:
        function: the handler.
        payload: what it is given, as JSON.
        called_off: if given, the job is called off, for this reason, before the handler starts.
        labels: the job's labels.
        facts: fields of `TakenJob`, such as `attempt`, `fire_at` or `timeout`.
    """
    job = made_up_job(payload, labels=dict(labels or {}), **facts)
    held = HeldAttempt(job, "test", _Deaf(), limits.LEASE_S_DEFAULT, monotonic())
    if called_off is not None:
        held.context.call_off(called_off)
    outcome = await held.find_outcome(Handler.of(function))
    latest = held.context.latest_progress
    return Ran(outcome, [] if latest is None else [latest])
