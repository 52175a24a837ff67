"""An e-mail worker: welcome mails, sent once each, to a maildir on this machine.

Run it beside a server (`tidewheel serve`): `python email_worker.py [MAILDIR]`. It submits a few mails and works until
nothing is left; a real worker would call `worker.run()` and stay.
"""

from __future__ import annotations

import asyncio
import logging
import mailbox
import sqlite3
import sys
import tempfile
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from tidewheel import Client, Context, Fail, NewJob, Worker, inbox

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="tidewheel-mail-"))
logging.basicConfig(level=logging.ERROR)  # what is refused is printed below

worker = Worker(queues=["emails"], concurrency=1)


@dataclass
class Email:
    """What a submitter says about a mail."""

    to: str
    subject: str
    body: str = ""


@worker.handler("send-email")
def send_email(email: Email, ctx: Context) -> dict[str, str]:
    """Delivers one mail. A plain function: it runs in a thread, so it may block."""
    if "@" not in email.to:
        raise Fail(f"{email.to!r} is not an address")  # another attempt cannot help
    message = EmailMessage()
    message["To"], message["Subject"] = email.to, email.subject
    message["Message-ID"] = f"<{ctx.idempotency_key}@example.com>"
    message.set_content(email.body)
    # The inbox remembers what was sent: when an answer is lost and the job comes again, it is not sent again. Only a
    # crash between the delivery and the commit could repeat it; then the Message-ID is the same.
    connection = sqlite3.connect(FOLDER / "sent.db")
    try:
        with inbox.once(connection, ctx.idempotency_key) as first:
            if first:
                mailbox.Maildir(FOLDER / "maildir").add(message)
                print(f"sent to {email.to}: {email.subject}")
    finally:
        connection.close()
    return {"sent_to": email.to}


async def main() -> None:
    """Submits four mails, one of them twice and one without an address, and sends them."""
    connection = sqlite3.connect(FOLDER / "sent.db")
    inbox.create_table_sync(connection)
    connection.close()
    async with Client() as client:
        mails = [
            ("ann", Email("ann@example.com", "Welcome, Ann")),
            ("bob", Email("bob@example.com", "Welcome, Bob")),
            ("ann", Email("ann@example.com", "Welcome, Ann")),
            ("eve", Email("eve", "Welcome, Eve")),
        ]
        jobs = await client.submit_many(
            NewJob("send-email", mail, queue="emails", idempotency_key=f"welcome-{who}") for who, mail in mails
        )
        print(f"submitted {len(jobs)}, of which {sum(job.duplicate for job in jobs)} a duplicate")
        await worker.run(burst=True)
        for job in [await client.get(id) for id in dict.fromkeys(job.id for job in jobs)]:
            print(f"{job.idempotency_key}: {job.state}, {job.result or job.last_error}")
    print(f"in the maildir: {len(mailbox.Maildir(FOLDER / 'maildir'))}")


if __name__ == "__main__":
    asyncio.run(main())
