/** The client over TLS, against a real server that asks for certificates. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Client, ConnectionError, NotFoundError, TidewheelError } from "tidewheel";
import { startServer, type TestServer } from "tidewheel/testing";

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
});
