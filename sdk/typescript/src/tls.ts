/** TLS towards a server: whom to trust, and what to show. Node's own `fetch` can be told neither. */
import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { Agent, request } from "node:https";
import { createSecureContext } from "node:tls";
import { TidewheelError } from "./errors.js";

/** Files, each as PEM; what is not given comes from the environment, as for the command line. */
export interface TlsOptions {
  /** Authorities that servers must have their certificates from; by default `TIDEWHEEL_CA_FILE`, or those Node trusts. */
  caFile?: string;
  /** A certificate to show to servers that ask for one; by default `TIDEWHEEL_CLIENT_CERT`, or none. */
  clientCert?: string;
  /** Its private key, if it is not in the same file; by default `TIDEWHEEL_CLIENT_KEY`. */
  clientKey?: string;
}

/** @internal One exchange: what a transport needs of `fetch`. */
export type Exchange = (address: string, init: ExchangeInit) => Promise<Response>;

/** @internal */
export interface ExchangeInit {
  method: string;
  headers: Record<string, string>;
  signal: AbortSignal;
  /** Where an answer points elsewhere, it is the answer. */
  redirect: "manual";
  body?: string;
}

/** Statuses whose answers have no body. */
const BODILESS = new Set([204, 205, 304]);

/** @internal Exchanges over TLS by these files; `undefined` where there are none, and Node's own way will do. */
export function exchangeByFiles(options: TlsOptions = {}): Exchange | undefined {
  const caFile = options.caFile || process.env["TIDEWHEEL_CA_FILE"];
  const certFile = options.clientCert || process.env["TIDEWHEEL_CLIENT_CERT"];
  const keyFile = options.clientKey || process.env["TIDEWHEEL_CLIENT_KEY"] || certFile;
  if (!caFile && !certFile) return undefined;
  const agent = new Agent({ keepAlive: true, ...read(caFile, certFile, keyFile) });
  return (address, init) => (address.startsWith("https:") ? exchange(agent, address, init) : fetch(address, init));
}

function read(caFile?: string, certFile?: string, keyFile?: string): { ca?: Buffer; cert?: Buffer; key?: Buffer } {
  try {
    const files = {
      ...(caFile ? { ca: readFileSync(caFile) } : {}),
      ...(certFile && keyFile ? { cert: readFileSync(certFile), key: readFileSync(keyFile) } : {}),
    };
    // Now rather than at the first call: a key that does not fit its certificate is a fault of the setup.
    createSecureContext(files);
    return files;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new TidewheelError(`the files of TLS cannot be used: ${why}`, { cause: error });
  }
}

function exchange(agent: Agent, address: string, init: ExchangeInit): Promise<Response> {
  const { method, headers, signal, body } = init;
  const why = (error: Error) => (signal.aborted && signal.reason instanceof Error ? signal.reason : error);
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const sent = request(address, { agent, method, headers: { ...headers, ...length }, signal }, (answer) => {
      resolve(responseOf(answer, why));
    });
    sent.on("error", (error) => { reject(why(error)); });
    sent.end(body);
  });
}

/** The answer as soon as it begins to come, as with `fetch`: whoever gives a call up may want the rest of one under way. */
function responseOf(answer: IncomingMessage, why: (error: Error) => Error): Response {
  const status = answer.statusCode ?? 0;
  const headers = new Headers();
  for (let at = 0; at + 1 < answer.rawHeaders.length; at += 2) {
    headers.append(answer.rawHeaders[at] ?? "", answer.rawHeaders[at + 1] ?? "");
  }
  const body = new ReadableStream<Uint8Array>({
    start: (stream) => {
      answer.on("error", (error) => { stream.error(why(error)); });
      answer.on("data", (part: Buffer) => { stream.enqueue(part); });
      answer.on("end", () => { stream.close(); });
    },
  });
  return new Response(BODILESS.has(status) ? null : body, { status, statusText: answer.statusMessage ?? "", headers });
}
