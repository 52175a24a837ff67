/** Submits two e-mails, one of them twice, and says what became of them. */
import { Client } from "tidewheel";
import { waitFor } from "tidewheel/testing";

const client = new Client();
const welcome = {
  type: "send-email",
  queue: "mail",
  payload: { to: "ann@slow.example", subject: "Welcome", text: "Hello Ann." },
  idempotencyKey: "welcome-ann",
  retry: { policy: "fixed", base: "100ms" },
} as const;

const first = await client.submit(welcome);
const again = await client.submit(welcome);
console.log(again.id === first.id ? "submitted twice, one job" : "two jobs");
const sent = await waitFor(client, first.id);
console.log(sent.state, "after", sent.attempt, "attempts:", sent.result);

const { id } = await client.submit({ ...welcome, payload: { ...welcome.payload, to: "nobody" }, idempotencyKey: "welcome-nobody" });
const dead = await waitFor(client, id);
console.log(dead.state, "after", dead.attempt, "attempt:", dead.lastError);
