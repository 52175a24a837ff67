"""Every bound of this package, by name, with its unit at the end.

The server has its own, and its word stands; these keep a program from running into them, or into its own memory.
"""

from typing import Final

BATCH_COUNT_MAX: Final = 1_000
"""Jobs sent in one request."""

BATCH_BYTES_MAX: Final = 4 * 1_024 * 1_024
"""Bytes sent in one request of several jobs."""

BATCHES_CONCURRENT_MAX: Final = 4
"""Batches under way at a time."""

BATCHER_LINGER_S: Final = 0.005
"""How long a batcher waits for company for a job."""

BATCHER_WAITING_COUNT_MAX: Final = 10_000
"""Jobs a batcher holds; submitting one more waits."""

REQUEST_TIMEOUT_S: Final = 30.0
"""How long one request may go unanswered."""

CONNECTIONS_COUNT_MAX: Final = 100
"""Connections of a client to its server. A worker has as many more as it runs handlers."""

PAGE_COUNT_MAX: Final = 1_000
"""Items on one page of a list."""

CONNECT_TIMEOUT_S: Final = 10.0
"""How long connecting may take."""

RETRY_FIRST_WAIT_S: Final = 0.1
"""The first wait before a call is tried again; each next is twice as long."""

RETRY_LONGEST_WAIT_S: Final = 5.0
"""The longest of the client's own waits. A server may ask for a longer one."""

RETRY_TOTAL_WAIT_S: Final = 30.0
"""All waits of one call together."""

OUTCOME_TOTAL_WAIT_S: Final = 120.0
"""How long a worker keeps trying to tell what came of an attempt: long enough to sit out a restart."""

LEASE_S_DEFAULT: Final = 30.0
"""How long a job a worker took is safe from others without a sign of life."""

LEASE_S_MIN: Final = 1.0
"""The shortest lease the server gives."""

HEARTBEATS_PER_LEASE: Final = 3
"""Signs of life in the time of one lease."""

HEARTBEAT_TIMEOUT_S_MIN: Final = 1.0
"""How long a heartbeat may go unanswered, however short the lease is, while the lease is trusted."""

LEASE_TRUSTED_PART: Final = 0.9
"""How much of a lease a worker counts on without a sign that the server heard it: less than the server does."""

TAKE_WAIT_S_DEFAULT: Final = 20.0
"""How long one request for jobs waits for the first."""

TAKE_COUNT_MAX: Final = 1_000
"""Jobs taken by one request."""

TAKE_MARGIN_S: Final = 15.0
"""How much longer than it was asked to wait the server may take to answer."""

TAKE_RETRY_LONGEST_WAIT_S: Final = 2.0
"""The longest wait between two tries to reach a server that is gone."""

STOP_TAKE_S: Final = 2.0
"""How long a request for jobs that is open when a worker is told to stop may still bring some, to be handed back."""

BURST_WAIT_S: Final = 1.0
"""How long a worker that runs until nothing is left waits for more."""

CONCURRENCY_DEFAULT: Final = 10
"""Handlers a worker runs at a time."""

DRAIN_S_DEFAULT: Final = 20.0
"""How long handlers may take to end after a worker was told to stop."""

CANCEL_GRACE_S: Final = 5.0
"""How long a handler whose attempt is over has to end by itself before it is interrupted."""

PROGRESS_EVERY_S: Final = 0.5
"""Time between two reports of progress."""

RESULT_BYTES_MAX: Final = 8_192
"""Bytes of a result, or of a report of progress."""

RESULT_DEPTH_MAX: Final = 128
"""How deep a result, or a report of progress, may nest."""

ERROR_BYTES_MAX: Final = 2_048
"""Bytes of an error that are sent: as many as the server keeps."""

RETRY_DELAY_S_MAX: Final = 7 * 86_400.0
"""How much later a job can be tried again, or snoozed to."""

INBOX_RETENTION_DAYS: Final = 14
"""How long an inbox keeps a key, unless told otherwise."""

INBOX_PRUNE_COUNT_MAX: Final = 10_000
"""Keys an inbox forgets at once."""

SERVER_START_S_MAX: Final = 60.0
"""How long a throw-away server may take to start, or to stop."""
