/** Cutting jobs into batches that one request carries, and sending one. */
import { ApiError, refusal } from "./errors.js";
import type { BatchedJob, NewJob, RefusedJob } from "./job.js";
import { BATCH_BYTES_MAX, BATCH_COUNT_MAX } from "./limits.js";
import type { Transport } from "./transport.js";
import { toWire } from "./wire.js";

/** Room for what a job gets on its way, such as a key. */
const JOB_BYTES = 512;

/**
 * About what a job takes in a request, at most.
 *
 * @throws What is wrong with a job that cannot be sent at all: told here, it does not spoil a batch.
 * @internal
 */
export function jobBytes(job: NewJob): number {
  // A character is at most three bytes of UTF-8; counting exactly would mean encoding twice.
  return JOB_BYTES + JSON.stringify(toWire(job)).length * 3;
}

/** @internal */
export async function* chunks(jobs: Iterable<NewJob> | AsyncIterable<NewJob>): AsyncGenerator<NewJob[], void> {
  let chunk: NewJob[] = [];
  let bytes = 0;
  for await (const job of jobs) {
    const size = jobBytes(job);
    if (chunk.length >= BATCH_COUNT_MAX || (chunk.length > 0 && bytes + size > BATCH_BYTES_MAX)) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(job);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}

/** @internal */
export interface ChunkOptions {
  partial?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** How long to go on trying; by default as long as the client does. */
  patienceMs?: number;
  /** How many jobs of the same call were sent before. */
  offset: number;
}

/** @internal */
export async function sendChunk(
  transport: Transport,
  jobs: NewJob[],
  options: ChunkOptions,
): Promise<(BatchedJob | RefusedJob)[]> {
  try {
    const answer = await transport.send<{ jobs: (BatchedJob | RefusedJob)[] }>({
      method: "POST",
      path: "/jobs/batch",
      query: { partial: options.partial ? "true" : undefined },
      body: jobs,
      signal: options.signal,
      ...(options.patienceMs === undefined ? {} : { patienceMs: options.patienceMs }),
      paced: true,
    });
    return await withoutShed(transport, jobs, answer.jobs, options);
  } catch (error) {
    throw error instanceof ApiError ? moved(error, options.offset) : error;
  }
}

/** Those the server had no room for beside more urgent ones are sent again; alone, they wait for as long as patience lasts. */
async function withoutShed(
  transport: Transport,
  jobs: NewJob[],
  answers: (BatchedJob | RefusedJob)[],
  options: ChunkOptions,
): Promise<(BatchedJob | RefusedJob)[]> {
  const isShed = (answer: BatchedJob | RefusedJob | undefined) =>
    answer !== undefined && "error" in answer && answer.error.code === "overloaded";
  if (!answers.some(isShed)) return answers;
  const shed = jobs.filter((_, place) => isShed(answers[place]));
  let again: (BatchedJob | RefusedJob)[];
  try {
    again = await sendChunk(transport, shed, options);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    // What became of the others is told whatever becomes of these.
    return answers;
  }
  return answers.map((answer) => (isShed(answer) ? (again.shift() ?? answer) : answer));
}

/** The error with pointers (`/3/type`) that count from the first job of the call, not of the batch. */
function moved(error: ApiError, offset: number): ApiError {
  if (offset === 0 || error.errors.length === 0) return error;
  const errors = error.errors.map((fault) => ({
    ...fault,
    pointer: fault.pointer.replace(/^\/(\d+)/, (_, place: string) => `/${Number(place) + offset}`),
  }));
  const { status, code, detail, retryAfterMs } = error;
  return refusal({ type: "about:blank", title: code, status, code, detail, errors }, retryAfterMs);
}
