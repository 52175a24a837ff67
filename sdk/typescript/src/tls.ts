/** TLS towards a server: whom to trust, and what to show. Node's own `fetch` can be told neither. */
import { readFileSync } from "node:fs";
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
  return new Promise((resolve, reject) => {
    const fail = (error: Error) => {
      reject(signal.aborted && signal.reason instanceof Error ? signal.reason : error);
    };
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const sent = request(address, { agent, method, headers: { ...headers, ...length }, signal }, (answer) => {
      const parts: Buffer[] = [];
      answer.on("error", fail);
      answer.on("data", (part: Buffer) => parts.push(part));
      answer.on("end", () => {
        const status = answer.statusCode ?? 0;
        const head = new Headers();
        for (let at = 0; at + 1 < answer.rawHeaders.length; at += 2) {
          head.append(answer.rawHeaders[at] ?? "", answer.rawHeaders[at + 1] ?? "");
        }
        const text = BODILESS.has(status) ? null : Buffer.concat(parts).toString("utf8");
        resolve(new Response(text, { status, statusText: answer.statusMessage ?? "", headers: head }));
      });
    });
    sent.on("error", fail);
    sent.end(body);
  });
}
