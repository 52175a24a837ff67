"""How long to keep trying: waits that double, with jitter, up to a total."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from . import limits


@dataclass(frozen=True)
class Patience:
    """How long a client keeps trying a call that is safe to repeat."""

    first_wait_s: float = limits.RETRY_FIRST_WAIT_S
    """The first wait; each next is twice as long."""
    longest_wait_s: float = limits.RETRY_LONGEST_WAIT_S
    """The longest of the client's own waits. A server may ask for a longer one."""
    total_wait_s: float = limits.RETRY_TOTAL_WAIT_S
    """All waits of one call together; the call is given up rather than exceed it."""

    @staticmethod
    def none() -> Patience:
        """Never tries twice."""
        return Patience(0.0, 0.0, 0.0)


@dataclass
class Waits:
    """The waits of one call."""

    patience: Patience
    _next_s: float = field(init=False)
    _left_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_s = self.patience.first_wait_s
        self._left_s = self.patience.total_wait_s

    def next_wait_s(self, asked_s: float | None = None) -> float | None:
        """The next wait, no shorter than the server asked for; `None` once patience is over.

        Half of the client's own wait is left to chance, so that many clients do not come back together.
        """
        own = min(self._next_s, self.patience.longest_wait_s)
        wait = own * (0.5 + random.random() / 2)  # noqa: S311
        if asked_s is not None:
            wait += asked_s
        if self._left_s <= 0 or wait > self._left_s:
            return None
        self._left_s -= wait
        self._next_s *= 2
        return wait
