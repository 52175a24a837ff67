/** A commit that PostgreSQL turns into a rollback, and a connection that breaks, told by connections that are made up. */
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { TidewheelError } from "tidewheel";
import * as inbox from "tidewheel/inbox";

test("work whose transaction was rolled back at its end is no success", async () => {
  const statements: string[] = [];
  const client = {
    query: (text: string) => {
      statements.push(text.split(" ")[0] ?? "");
      return Promise.resolve({ rowCount: 1, command: text === "COMMIT" ? "ROLLBACK" : text });
    },
  };
  await assert.rejects(inbox.once(client, "k", () => Promise.resolve("done")), TidewheelError);
  assert.deepEqual(statements, ["BEGIN", "INSERT", "COMMIT", "ROLLBACK"]);
});

test("a connection of a pool is listened to while it is lent: unheard, its break would end the process", async () => {
  const released: unknown[] = [];
  const client = Object.assign(new EventEmitter(), {
    query: (text: string) => Promise.resolve({ rowCount: 1, command: text }),
    release: (error?: boolean | Error) => { released.push(error); },
  });
  const pool = { totalCount: 1, connect: () => Promise.resolve(client) };
  const breaking = () => {
    // Without a listener this throws, in `pg` out of an event of the socket.
    client.emit("error", new Error("the connection broke"));
    return Promise.reject(new Error("the statement failed"));
  };
  await assert.rejects(inbox.once(pool, "k", breaking), /the statement failed/);
  assert.deepEqual(released, [true]);
  assert.equal(client.listenerCount("error"), 0, "the pool listens again");
});
