/** The client over TLS, against a real server that asks for certificates. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, ConnectionError, NotFoundError, TidewheelError, Worker, type WorkerEvent } from "tidewheel";
import { startServer, type TestServer } from "tidewheel/testing";
import { eventually } from "./eventually.js";
import { takenAnswer } from "./taken.js";

/** An authority, and certificates from it, in a folder. */
function certificates(folder: string): void {
  const openssl = (...args: string[]) => execFileSync("openssl", args, { cwd: folder, stdio: "pipe" });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  openssl("req", "-x509", ...key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2");
  for (const name of ["server", "client"]) {
    openssl("req", ...key, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", `/CN=${name}`);
    writeFileSync(join(folder, `${name}.ext`), "subjectAltName=IP:127.0.0.1\n");
    const issue = ["x509", "-req", "-in", `${name}.csr`, "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
    openssl(...issue, "-days", "2", "-extfile", `${name}.ext`, "-out", `${name}.pem`);
  }
}

describe("tls", () => {
  const folder = mkdtempSync(join(tmpdir(), "tidewheel-tls-"));
  const file = (name: string) => join(folder, name);
  let server: TestServer;
  before(async () => {
    certificates(folder);
    server = await startServer({
      args: ["--tls-cert", file("server.pem"), "--tls-key", file("server.key"), "--tls-client-ca", file("ca.pem")],
    });
  });
  after(async () => {
    await server.stop();
    rmSync(folder, { recursive: true });
  });
  const url = () => server.url;

  test("a client with the authority and its certificate is let in", async () => {
    const tls = { caFile: file("ca.pem"), clientCert: file("client.pem"), clientKey: file("client.key") };
    const client = new Client({ url: url(), tls });
    const sent = await client.submit({ type: "secure", payload: { ü: "ö" }, delay: "1h" });
    assert.deepEqual((await client.get(sent.id)).payload, { ü: "ö" });
    await assert.rejects(client.get("job_00000000000000000000000000"), NotFoundError);
    const schedule = await client.schedules.create({ type: "secure", every: "1h" });
    await client.schedules.delete(schedule.id);
  });

  test("one without a certificate, or that does not know the authority, is not", async () => {
    for (const tls of [{ caFile: file("ca.pem") }, { clientCert: file("client.pem"), clientKey: file("client.key") }]) {
      const client = new Client({ url: url(), tls, patienceMs: 0 });
      await assert.rejects(client.count(), ConnectionError);
    }
  });

  test("files that cannot be used are told at once", () => {
    for (const tls of [{ caFile: file("none.pem") }, { clientCert: file("client.pem"), clientKey: file("server.key") }]) {
      assert.throws(() => new Client({ url: url(), tls }), TidewheelError);
    }
  });

  test("a call can be given up while it is under way", async () => {
    const tls = { caFile: file("ca.pem"), clientCert: file("client.pem"), clientKey: file("client.key") };
    const client = new Client({ url: url(), tls });
    const given = new Error("given up");
    await assert.rejects(client.count({}, { signal: AbortSignal.abort(given) }), (error) => error === given);
  });

  /** A server of its own that answers as a test says; and a client for it. */
  async function stub(answer: (path: string, body: string, response: ServerResponse) => void): Promise<{ server: Server; client: Client }> {
    const server = createServer({ cert: readFileSync(file("server.pem")), key: readFileSync(file("server.key")) }, (request, response) => {
      void text(request).then((body) => { answer(request.url ?? "", body, response); });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    return { server, client: new Client({ url: `https://127.0.0.1:${port}`, tls: { caFile: file("ca.pem") }, patienceMs: 0 }) };
  }

  const half = '{"count":';
  for (const [what, begin] of [["no answer comes", ""], ["the answer is under way", half]] as const) {
    test(`a call is given up, by a signal or for its time, while ${what}`, async (t) => {
      const asked: string[] = [];
      const { server, client } = await stub((path, _, response) => {
        asked.push(path);
        response.writeHead(200, { "content-type": "application/json" });
        if (begin !== "") response.write(begin);
      });
      t.after(() => { server.closeAllConnections(); server.close(); });
      const given = new Error("given up");
      const control = new AbortController();
      const call = client.count({}, { signal: control.signal });
      await eventually("the call", () => asked.length === 1);
      control.abort(given);
      await assert.rejects(call, (error) => error === given);
      const hasty = new Client({ url: client.url, tls: { caFile: file("ca.pem") }, patienceMs: 0, timeoutMs: 300 });
      await assert.rejects(hasty.count(), /no answer from .* within 300 ms/);
    });
  }

  test("an answer that has begun to come when a worker stops is read to its end", async (t) => {
    const outcomes: unknown[] = [];
    const begun: ServerResponse[] = [];
    const taken = JSON.stringify(takenAnswer([{ id: "job_1", token: 7 }]).body);
    const { server, client } = await stub((path, body, response) => {
      if (path.endsWith("/take")) {
        response.writeHead(200, { "content-type": "application/json" });
        response.write(taken.slice(0, 10));
        begun.push(response);
        return;
      }
      outcomes.push(JSON.parse(body));
      response.end("{}");
    });
    t.after(() => { server.closeAllConnections(); server.close(); });
    const kinds: WorkerEvent["kind"][] = [];
    const worker = new Worker(client, { signals: false, onEvent: ({ kind }) => kinds.push(kind) });
    const run = worker.run();
    await eventually("the request", () => begun.length === 1);
    const drained = worker.drain();
    // By now requests that nothing has come of are given up.
    await sleep(1_500);
    begun[0]?.end(taken.slice(10));
    await drained;
    await run;
    assert.deepEqual(outcomes, [{ token: 7, status: "snoozed", retry_after: 0 }]);
    assert.deepEqual(kinds, ["handed_back"]);
  });
});
