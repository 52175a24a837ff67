/** Takes e-mails from the queue `mail` and "sends" them: each becomes a file in the folder named on the command line. */
import { mkdir, rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Client, Fail, Retry, Worker } from "tidewheel";

interface Mail {
  to: string;
  subject: string;
  text: string;
}

function parse(payload: unknown): Mail {
  const { to, subject, text } = payload as Partial<Mail>;
  if (typeof to !== "string" || typeof subject !== "string" || typeof text !== "string") {
    throw new TypeError("an e-mail has a to, a subject and a text");
  }
  return { to, subject, text };
}

const outbox = process.argv[2] ?? "outbox";
await mkdir(outbox, { recursive: true });

const worker = new Worker(new Client(), { queues: ["mail"], concurrency: 10 });

worker.handler("send-email", { parse }, async (mail, { job }) => {
  const told = `${mail.to}, attempt ${job.attempt}`;
  if (!mail.to.includes("@")) {
    console.log(`${told}: no such address`);
    throw new Fail(`${mail.to} is no address`);
  }
  // Greylisting: the first try at this host is always turned away.
  if (mail.to.endsWith("@slow.example") && job.attempt === 1) {
    console.log(`${told}: come back later`);
    throw new Retry("450 greylisted", { after: "100ms" });
  }
  // The file has the idempotency key for a name: written twice, it is one e-mail. The rename makes it whole or not there.
  const file = join(outbox, `${job.idempotencyKey}.eml`);
  const message = [`To: ${mail.to}`, `Subject: ${mail.subject}`, `Message-ID: <${job.idempotencyKey}@example.com>`, "", mail.text, ""];
  await writeFile(`${file}.${job.token}`, message.join("\n"));
  await rename(`${file}.${job.token}`, file);
  console.log(`${told}: sent`);
  return { messageId: `<${job.idempotencyKey}@example.com>` };
});

await worker.run();
console.log("drained");
