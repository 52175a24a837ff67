/** A commit that PostgreSQL turns into a rollback, told by a connection that is made up. */
import assert from "node:assert/strict";
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
