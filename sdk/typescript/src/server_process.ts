/** A server process of its own, for tests. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { accessSync, constants } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { Client } from "./client.js";
import { TidewheelError } from "./errors.js";
import type { ConnectOptions } from "./transport.js";

/** How a server for tests is started. */
export interface ServerOptions {
  /** The program; by default `TIDEWHEEL_BIN`, a debug build of the workspace around, or `tidewheel` on the path. */
  binary?: string;
  /** More flags for `serve`. */
  args?: readonly string[];
  /** How long it may take to listen, in milliseconds; 60,000 by default. */
  timeoutMs?: number;
}

const START_MS_MAX = 60_000;
const OUTPUT_CHARS_MAX = 10_000;

/** Where the server program is. */
export function findBinary(): string {
  const named = process.env["TIDEWHEEL_BIN"];
  if (named) return named;
  const target = process.env["CARGO_TARGET_DIR"];
  const candidates = target ? [join(target, "debug", "tidewheel")] : [];
  for (let folder = process.cwd(); ; folder = dirname(folder)) {
    candidates.push(join(folder, "target", "debug", "tidewheel"));
    if (folder === dirname(folder)) break;
  }
  for (const folder of (process.env["PATH"] ?? "").split(delimiter)) if (folder) candidates.push(join(folder, "tidewheel"));
  const found = candidates.find(isExecutable);
  if (found === undefined) throw new TidewheelError("there is no tidewheel program: set TIDEWHEEL_BIN to where it is");
  return found;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A running server with data of its own, which `stop` deletes. */
export class TestServer {
  /** Its address; the same after a restart. */
  readonly url: string;
  readonly #data: string;
  readonly #options: ServerOptions;
  #process: ChildProcess;

  /** @internal */
  constructor(url: string, data: string, options: ServerOptions, process: ChildProcess) {
    this.url = url;
    this.#data = data;
    this.#options = options;
    this.#process = process;
  }

  /** A client for it. */
  client(options: Omit<ConnectOptions, "url"> = {}): Client {
    return new Client({ ...options, url: this.url });
  }

  /** Its process id. */
  get pid(): number | undefined {
    return this.#process.pid;
  }

  /** Ends the process as an operator would (SIGTERM), or at once (SIGKILL). The data stays. */
  async halt(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
    await end(this.#process, signal);
  }

  /** Starts it again after `halt`, with its data and at its address. */
  async start(): Promise<void> {
    if (running(this.#process)) throw new TidewheelError("the server runs already");
    const listen = new URL(this.url).host;
    this.#process = (await launch(this.#data, listen, this.#options)).process;
  }

  /** Ends it and deletes its data. */
  async stop(): Promise<void> {
    await end(this.#process, "SIGKILL");
    await rm(this.#data, { recursive: true, force: true });
  }

  /** The same as `stop`, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}

/**
 * Starts a server that listens on a free port of this machine and keeps its data in a folder for the time being.
 *
 * @example
 * ```ts
 * const server = await startServer();
 * const { id } = await server.client().submit({ type: "hello" });
 * await server.stop();
 * ```
 */
export async function startServer(options: ServerOptions = {}): Promise<TestServer> {
  const data = await mkdtemp(join(tmpdir(), "tidewheel-test-"));
  try {
    const { url, process } = await launch(data, "127.0.0.1:0", options);
    return new TestServer(url, data, options, process);
  } catch (error) {
    await rm(data, { recursive: true, force: true });
    throw error;
  }
}

function running(process: ChildProcess): boolean {
  return process.exitCode === null && process.signalCode === null;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (!running(child)) return;
  const exited = once(child, "exit");
  child.kill(signal);
  await exited;
  children.delete(child);
}

/** Servers of this process, so that none outlives it. */
const children = new Set<ChildProcess>();
let guarded = false;

function guardExit(): void {
  if (guarded) return;
  guarded = true;
  process.once("exit", () => { for (const child of children) child.kill("SIGKILL"); });
}

function launch(data: string, listen: string, options: ServerOptions): Promise<{ url: string; process: ChildProcess }> {
  const args = ["serve", "--data", data, "--listen", listen, ...(options.args ?? [])];
  guardExit();
  const child = spawn(options.binary ?? findBinary(), args, { stdio: ["ignore", "pipe", "pipe"], cwd: data });
  children.add(child);
  return new Promise((resolve, reject) => {
    let output = "";
    const fail = (why: string) => {
      clearTimeout(timer);
      child.kill("SIGKILL");
      reject(new TidewheelError(`the server did not start: ${why}\n${output}`));
    };
    const timer = setTimeout(() => { fail("it took too long"); }, options.timeoutMs ?? START_MS_MAX);
    const hear = (chunk: Buffer) => {
      if (output.length < OUTPUT_CHARS_MAX) output += chunk.toString();
      const url = /listening on (https?:\/\/[^\s,]+)[^\n]*\n/.exec(output)?.[1];
      if (url === undefined) return;
      clearTimeout(timer);
      resolve({ url, process: child });
    };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.once("error", (error) => { fail(error.message); });
    child.once("exit", (code, signal) => { fail(`it ended with ${String(code ?? signal)}`); });
  });
}
