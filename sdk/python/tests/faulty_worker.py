"""A worker in a process of its own, to be killed and stopped: `faulty_worker.py URL QUEUE LEASE NAME LOG`.

It writes a line for each start, `ID ATTEMPT TOKEN NAME`, to LOG, and its own log to stderr. A handler that is
told to hang does so for as long as the file LOG.hang exists.
"""

import asyncio
import logging
import os
import sys

from tidewheel import Context, Worker

url, queue, lease, name, log = sys.argv[1:]
logging.basicConfig(stream=sys.stderr, level=logging.INFO)
worker = Worker(url, queues=[queue], lease=lease, name=name, concurrency=200, wait="2s")


@worker.handler("t")
async def handle(payload: dict[str, str], ctx: Context) -> str:
    """Notes its start, and hangs if it is told to."""
    with open(log, "a") as notes:
        notes.write(f"{ctx.id} {ctx.attempt} {ctx.token} {name}\n")
    while payload.get("hang") == name and os.path.exists(f"{log}.hang"):
        await asyncio.sleep(0.02)
    return name


asyncio.run(worker.run())
