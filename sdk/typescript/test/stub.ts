/** A server that answers what a test tells it to, and remembers what it was asked. */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";

/** What was asked. */
export interface Asked {
  method: string;
  path: string;
  key: string | undefined;
  body: unknown;
  at: number;
}

/** An answer, or `drop`: the connection is cut instead. */
export type Answer = { status: number; body?: unknown; headers?: Record<string, string> } | "drop";

/** A stub that is listening. */
export interface Stub {
  url: string;
  asked: Asked[];
  close: () => Promise<void>;
}

/** Starts one; `answer` gets the request and how many came before, and may take its time. */
export async function stub(answer: (asked: Asked, before: number) => Answer | Promise<Answer>): Promise<Stub> {
  const asked: Asked[] = [];
  const read = async (request: IncomingMessage): Promise<Asked> => {
    const body = await text(request);
    const key = request.headers["idempotency-key"];
    return {
      method: request.method ?? "",
      path: request.url ?? "",
      key: typeof key === "string" ? key : undefined,
      body: body === "" ? undefined : JSON.parse(body),
      at: performance.now(),
    };
  };
  const server = createServer((request, response) => {
    void read(request).then(async (one) => {
      const given = answer(one, asked.length);
      asked.push(one);
      const result = await given;
      if (result === "drop") {
        request.socket.destroy();
        return;
      }
      response.writeHead(result.status, { "content-type": "application/json", ...result.headers });
      response.end(result.body === undefined ? "" : JSON.stringify(result.body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => { resolve(); });
      }),
  };
}
