"""What can go wrong, by kind.

Everything raised here is a `TidewheelError`. A refusal by the server is an `ApiError` with the problem document's
`code` (stable; see the server's `/docs/errors`), `detail` and `errors`. No answer at all is `Unreachable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Submitted


class TidewheelError(Exception):
    """Anything this package raises by itself."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request."""

    pointer: str
    """Where in the body, as a JSON pointer."""
    code: str
    """What kind of fault it is."""
    detail: str
    """What is wrong, for humans."""


class ApiError(TidewheelError):
    """The server refused the request."""

    def __init__(
        self,
        status: int,
        *,
        code: str,
        title: str = "",
        detail: str = "",
        errors: Sequence[Fault] = (),
        retry_after_s: float | None = None,
    ) -> None:
        self.status = status
        """The HTTP status."""
        self.code = code
        """The problem's stable code, such as `invalid_cron`."""
        self.title = title
        """What kind of problem it is, for humans."""
        self.detail = detail
        """What is wrong, for humans."""
        self.errors = tuple(errors)
        """Each fault, where there are several or the place matters."""
        self.retry_after_s = retry_after_s
        """How long the server asked to wait."""
        self.tries = 1
        """How often the request was sent before giving up."""
        super().__init__(status, code, detail)

    def __str__(self) -> str:
        text = f"{self.code} ({self.status}): {self.detail or self.title}"
        if len(self.errors) > 1:
            text += "".join(f"; {fault.pointer}: {fault.detail}" for fault in self.errors)
        return text if self.tries == 1 else f"{text} (gave up after {self.tries} tries)"


class Invalid(ApiError):
    """The request cannot be read, is too large, or is not valid (400, 413, 415, 422)."""


class Unauthorized(ApiError):
    """The key is missing, unknown, or not allowed to do this (401, 403)."""


class NotFound(ApiError):
    """There is no such thing (404)."""


class Conflict(ApiError):
    """What is there does not allow it now (409)."""


class IdempotencyConflict(Conflict):
    """The idempotency key belongs to a different request."""


class StaleToken(Conflict):
    """The attempt is over, or was given to another runner."""


class StaleVersion(ApiError):
    """The schedule was changed since it was read (412)."""


class TooManyRequests(ApiError):
    """The caller is to slow down (429)."""


class Unavailable(ApiError):
    """The server cannot answer now (503, and 502 and 504 of what stands before it)."""


class ServerError(ApiError):
    """Something broke inside the server (500)."""


class Unreachable(TidewheelError):
    """No answer came."""

    def __init__(self, detail: str, *, uncertain: bool = False) -> None:
        self.detail = detail
        """What went wrong with the connection."""
        self.uncertain = uncertain
        """Whether the server may have done what was asked although no answer came."""
        self.tries = 1
        """How often the request was sent before giving up."""
        super().__init__(detail)

    def __str__(self) -> str:
        text = f"no answer: {self.detail}"
        if self.uncertain:
            text += "; it may have been done all the same"
        return text if self.tries == 1 else f"{text} (gave up after {self.tries} tries)"


class BatchRefused(TidewheelError):
    """Some jobs of several were not taken in. The others were."""

    def __init__(self, answers: Sequence[Submitted | TidewheelError]) -> None:
        self.answers = list(answers)
        """For each job, in the order given: what was taken in, or why it was not."""
        super().__init__(len(self.answers))

    @property
    def refused(self) -> list[tuple[int, TidewheelError]]:
        """The place of each job that was not taken in, and why."""
        return [(i, answer) for i, answer in enumerate(self.answers) if isinstance(answer, TidewheelError)]

    def __str__(self) -> str:
        refused = self.refused
        place, first = refused[0]
        return f"{len(refused)} of {len(self.answers)} jobs were not taken in; the first, number {place}: {first}"


_BY_CODE: dict[str, type[ApiError]] = {
    "idempotency_conflict": IdempotencyConflict,
    "stale_token": StaleToken,
}

_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    412: StaleVersion,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    429: TooManyRequests,
    500: ServerError,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def from_problem(status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> ApiError:
    """Makes the error of the right kind from a problem document (RFC 9457)."""
    code = str(problem.get("code") or f"http_{status}")
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, ApiError)
    faults = [
        Fault(str(item.get("pointer", "")), str(item.get("code", "")), str(item.get("detail", "")))
        for item in problem.get("errors") or ()
    ]
    title, detail = str(problem.get("title", "")), str(problem.get("detail", ""))
    return kind(status, code=code, title=title, detail=detail, errors=faults, retry_after_s=retry_after_s)
