"""One HTTP call: sent, answered or refused, tried again where that may help.

Every call can be sent again even if an earlier try may have been carried out: it carries an idempotency key, or doing
it twice is the same as once.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp

from . import limits
from .encoding import read_json
from .errors import ApiError, TidewheelError, TooManyRequests, Unavailable, Unreachable, from_problem
from .patience import Patience, Waits
from .tls import Tls

# Refusals before anything was done. Of other 503s, and of what a proxy says, one cannot be sure.
_NOTHING_DONE = frozenset({"draining", "overloaded", "store_full"})

# Sent never or not whole, so that the server cannot have acted on it.
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


def url_default() -> str:
    """Where the server is unless told otherwise: as the command line has it."""
    return os.environ.get("TIDEWHEEL_URL") or "http://127.0.0.1:7400"


def new_key() -> str:
    """An idempotency key nobody else has."""
    return f"py-{uuid4().hex}"


@dataclass(frozen=True)
class Call:
    """A request."""

    method: str
    path: str
    """Below the server's address, with its leading slash; parts already quoted."""
    body: bytes | None = None
    """JSON."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = limits.REQUEST_TIMEOUT_S
    insistent: bool = False
    """Tried again after any fault of the server's own (500, too): for what must not get lost."""


@dataclass(frozen=True)
class Answer:
    """What the server said."""

    status: int
    body: Any
    """The JSON; `None` if there is none."""
    headers: Mapping[str, str]


class Transport:
    """Connections to one server, for one tenant and key."""

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        tenant: str | None = None,
        tls: Tls | None = None,
        patience: Patience | None = None,
        connections_count_max: int = limits.CONNECTIONS_COUNT_MAX,
    ) -> None:
        self.url = (url or url_default()).rstrip("/")
        key = key or os.environ.get("TIDEWHEEL_KEY")
        tenant = tenant or os.environ.get("TIDEWHEEL_TENANT")
        self.patience = patience or Patience()
        self._tls = tls or Tls()
        self._headers = {"Accept": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        if tenant:
            self._headers["Tidewheel-Tenant"] = tenant
        self._connections_count_max = connections_count_max
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    def _open_session(self) -> aiohttp.ClientSession:
        if self._closed:
            raise TidewheelError("the client is closed")
        if self._session is None:
            is_secret = self.url.startswith("https://")
            context = self._tls.context() if is_secret else True
            connector = aiohttp.TCPConnector(limit=self._connections_count_max, ssl=context)
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session

    async def close(self) -> None:
        """Closes all connections."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def once(self, call: Call) -> Answer:
        """Sends the request one time.

        Raises:
            ApiError: the server refused it.
            Unreachable: no answer came.
        """
        session = self._open_session()
        headers = dict(call.headers)
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        timeout = aiohttp.ClientTimeout(total=call.timeout_s, sock_connect=limits.CONNECT_TIMEOUT_S)
        try:
            async with session.request(
                call.method,
                self.url + call.path,
                params=call.query,
                data=call.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                raw = await response.read()
                return _answer(response, raw)
        except _NOT_SENT as error:
            raise Unreachable(f"{self.url}: {_shown(error)}") from error
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            raise Unreachable(f"{self.url}: {_shown(error)}", uncertain=True) from error

    async def send(self, call: Call, patience: Patience | None = None) -> Answer:
        """Sends the request, again and again where that is safe and may help, until patience is over.

        Raises:
            ApiError: the server refused it.
            Unreachable: no answer came.
        """
        waits, tries, uncertain = Waits(patience or self.patience), 0, False
        while True:
            tries += 1
            try:
                return await self.once(call)
            except (ApiError, Unreachable) as error:
                error.tries = tries
                if isinstance(error, ApiError) and not _passing(error, call):
                    raise
                uncertain = uncertain or _may_be_done(error)
                if isinstance(error, Unreachable):
                    error.uncertain = uncertain
                asked = error.retry_after_s if isinstance(error, ApiError) else None
                wait = waits.next_wait_s(asked)
                if wait is None:
                    raise
                await asyncio.sleep(wait)


def _passing(error: ApiError, call: Call) -> bool:
    return isinstance(error, (TooManyRequests, Unavailable)) or (call.insistent and error.status >= 500)  # noqa: PLR2004


def _may_be_done(error: ApiError | Unreachable) -> bool:
    if isinstance(error, Unreachable):
        return error.uncertain
    return not isinstance(error, TooManyRequests) and error.code not in _NOTHING_DONE


def _answer(response: aiohttp.ClientResponse, raw: bytes) -> Answer:
    try:
        body = read_json(raw) if raw else None
    except ValueError:
        body = None
    if response.ok and response.status < 300:  # noqa: PLR2004
        return Answer(response.status, body, response.headers)
    problem = body if isinstance(body, dict) else {"detail": raw[:200].decode("utf-8", "replace")}
    raise from_problem(response.status, problem, _retry_after_s(response.headers.get("Retry-After")))


def _retry_after_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        return None


def _shown(error: BaseException) -> str:
    return str(error) or type(error).__name__
