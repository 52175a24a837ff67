"""One server for most tests, a queue for each, and where the program is."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tidewheel import Client
from tidewheel.testing import BINARY_VARIABLE, Server

ROOT = Path(__file__).resolve().parents[3]


def find_binary() -> str:
    """Where the built program is: named by the environment, or where cargo puts it."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        return named
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    for profile in ("debug", "release"):
        binary = target / profile / "tidewheel"
        if binary.exists():
            return str(binary)
    pytest.exit(f"there is no tidewheel in {target}: build it (cargo build), or set {BINARY_VARIABLE}", 2)


def pytest_configure(config: pytest.Config) -> None:
    os.environ[BINARY_VARIABLE] = find_binary()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.url) as client:
        yield client


@pytest.fixture
def queue() -> str:
    """A queue no other test uses."""
    return f"q-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server a test may stop and kill."""
    with Server() as server:
        yield server
