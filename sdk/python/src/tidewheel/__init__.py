"""Client and worker for Tidewheel, the distributed task scheduler. Pure asyncio.

- `Client`: submit jobs, ask for them, change them; `client.schedules`, `client.dead_letters`.
- `Batcher`: single submissions made at the same time travel together.
- `Worker`, `Context`: run jobs; `Retry`, `Fail`, `Snooze`, `Cancelled` say what came of one.
- `tidewheel.inbox`: skips duplicate deliveries, within your own database transaction.
- `tidewheel.testing`: a throw-away server, and handlers run without one.
"""

from .batcher import Batcher
from .client import Client
from .context import Context, TakenJob
from .encoding import PayloadError
from .errors import (
    ApiError,
    BatchRefused,
    Conflict,
    Fault,
    IdempotencyConflict,
    Invalid,
    NotFound,
    ServerError,
    StaleToken,
    StaleVersion,
    TidewheelError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from .filters import Filter
from .models import Attempt, Bulk, Count, Explanation, Job, NewJob, Page, RetryPolicy, Submitted, Target
from .outcomes import Cancelled, Fail, Retry, Snooze
from .patience import Patience
from .schedule_models import Backfilled, Fire, Firing, Schedule, Triggered
from .tls import Tls
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "Attempt",
    "Backfilled",
    "BatchRefused",
    "Batcher",
    "Bulk",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Count",
    "Explanation",
    "Fail",
    "Fault",
    "Filter",
    "Fire",
    "Firing",
    "IdempotencyConflict",
    "Invalid",
    "Job",
    "NewJob",
    "NotFound",
    "Page",
    "Patience",
    "PayloadError",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "ServerError",
    "Snooze",
    "StaleToken",
    "StaleVersion",
    "Submitted",
    "TakenJob",
    "Target",
    "TidewheelError",
    "Tls",
    "TooManyRequests",
    "Triggered",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Worker",
]
