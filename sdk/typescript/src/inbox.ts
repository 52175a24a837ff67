/**
 * The inbox: skips deliveries whose work was done before.
 *
 * Jobs are delivered at least once. A handler that writes to a database records the job's idempotency key in the same
 * transaction as its work; when the job comes again, the key is there and the work is skipped. Either both are
 * committed or neither is.
 *
 * PostgreSQL (`pg`) and SQLite (`better-sqlite3`) are used through the objects the caller has anyway. The table is that of the
 * Python package: workers of both may share one.
 *
 * Keys are kept until pruned. A duplicate can come as long as a job can be delivered: its retries, and any replay by hand.
 * `prune` forgets old ones, a bounded number at once; run it daily, from a schedule for example.
 *
 * @packageDocumentation
 */
import { durationMs, type Duration } from "./duration.js";
import { TidewheelError } from "./errors.js";
import { INBOX_PRUNE_COUNT_MAX, INBOX_RETENTION_MS } from "./limits.js";

/** The name of the table, unless another is given. */
export const TABLE_DEFAULT = "tidewheel_inbox";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$/;

/** A connection of `pg`: a `Client`, or one checked out of a `Pool`. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<{ rowCount: number | null; command?: string }>;
}

/** A `Pool` of `pg`. */
export interface PgPool {
  connect(): Promise<PgClient & { release(error?: boolean | Error): void }>;
  readonly totalCount: number;
}

/** A `Database` of `better-sqlite3`. */
export interface SqliteDatabase {
  readonly inTransaction: boolean;
  prepare(sql: string): { run(...values: unknown[]): { changes: number } };
  exec(sql: string): unknown;
}

/** The key itself, or the `Context` of a handler. */
export type Key = string | { readonly job: { readonly idempotencyKey: string } };

/** What became of the work. */
export type Once<T> = { readonly skipped: false; readonly value: T } | { readonly skipped: true };

/** Where keys are kept. */
export interface InboxOptions {
  /** The table, perhaps with its schema: `app.inbox`; `tidewheel_inbox` by default. */
  table?: string;
  /** Whose keys they are, where several programs that all handle the same jobs share a table; `""` by default. */
  consumer?: string;
}

/** What is forgotten. */
export interface PruneOptions extends InboxOptions {
  /** Keys recorded longer ago than this; 14 days by default. */
  olderThan?: Duration;
  /** At most so many, oldest first; 10,000 by default. */
  countMax?: number;
}

/** Makes the table and its index, where they are not there yet. */
export function createTable(db: SqliteDatabase, options?: InboxOptions): void;
export function createTable(db: PgClient | PgPool, options?: InboxOptions): Promise<void>;
export function createTable(db: SqliteDatabase | PgClient | PgPool, options?: InboxOptions): void | Promise<void> {
  if (isSqlite(db)) {
    for (const statement of tableOf(options, "sqlite")) db.exec(statement);
    return undefined;
  }
  return withClient(db, async (client) => {
    for (const statement of tableOf(options, "postgres")) await client.query(statement);
  });
}

/**
 * Records a key in a transaction that the caller has open.
 *
 * @returns Whether it is new. If not, the work was done before: skip it.
 */
export function record(db: SqliteDatabase, key: Key, options?: InboxOptions): boolean;
export function record(db: PgClient, key: Key, options?: InboxOptions): Promise<boolean>;
export function record(db: SqliteDatabase | PgClient, key: Key, options?: InboxOptions): boolean | Promise<boolean> {
  const insert = `INSERT INTO ${nameOf(options)} (consumer, key, recorded_at) VALUES`;
  const values = [options?.consumer ?? "", textOf(key)];
  if (isSqlite(db)) return db.prepare(`${insert} (?, ?, ?) ON CONFLICT DO NOTHING`).run(...values, epochSeconds()).changes === 1;
  return db.query(`${insert} ($1, $2, now()) ON CONFLICT DO NOTHING`, values).then(({ rowCount }) => rowCount === 1);
}

/**
 * Runs the work once per key, in a transaction of its own together with the record of the key. If the work throws,
 * nothing is kept and the next delivery runs it.
 *
 * With SQLite the work is synchronous, as `better-sqlite3` is; if a transaction is open, it is joined. With PostgreSQL
 * give a pool, or a client that has no transaction open and that nobody else uses meanwhile; a second delivery that
 * comes while the first is at work waits for it.
 *
 * @param db - The caller's database.
 * @param key - The handler's context, or a key.
 * @param work - Does its writes through what it is given.
 * @returns The work's value, or that it was skipped.
 */
export function once<T, D extends SqliteDatabase>(db: D, key: Key, work: (db: D) => T, options?: InboxOptions): Once<T>;
export function once<T, C extends PgClient = PgClient>(
  db: PgPool,
  key: Key,
  work: (client: C) => Promise<T>,
  options?: InboxOptions,
): Promise<Once<T>>;
export function once<T, C extends PgClient>(
  // eslint-disable-next-line @typescript-eslint/unified-signatures -- as one, a pool would be taken for the work's client
  db: C,
  key: Key,
  work: (client: C) => Promise<T>,
  options?: InboxOptions,
): Promise<Once<T>>;
export function once<T>(
  db: SqliteDatabase | PgClient | PgPool,
  key: Key,
  work: (db: never) => T | Promise<T>,
  options?: InboxOptions,
): Once<T> | Promise<Once<T>> {
  if (isSqlite(db)) return sqliteOnce(db, key, work as (db: SqliteDatabase) => T, options);
  return withClient(db, (client) => pgOnce(client, key, work as (client: PgClient) => Promise<T>, options));
}

/**
 * Forgets the consumer's old keys, oldest first, at most 10,000 at once unless told otherwise. A key must stay as long as its
 * job may come again: longer than its retries take, and than anybody might replay it.
 *
 * @returns How many.
 */
export function prune(db: SqliteDatabase, options?: PruneOptions): number;
export function prune(db: PgClient | PgPool, options?: PruneOptions): Promise<number>;
export function prune(db: SqliteDatabase | PgClient | PgPool, options: PruneOptions = {}): number | Promise<number> {
  const { consumer = "", olderThan, countMax = INBOX_PRUNE_COUNT_MAX } = options;
  const table = nameOf(options);
  const ageSeconds = (olderThan === undefined ? INBOX_RETENTION_MS : durationMs(olderThan)) / 1_000;
  // SQLite would take a number below nothing for no bound at all.
  if (!Number.isInteger(countMax) || countMax < 1) throw new RangeError("countMax is at least 1");
  if (isSqlite(db)) {
    const old = `SELECT rowid FROM ${table} WHERE consumer = ? AND recorded_at < ? ORDER BY recorded_at LIMIT ?`;
    return db.prepare(`DELETE FROM ${table} WHERE rowid IN (${old})`).run(consumer, epochSeconds() - ageSeconds, countMax).changes;
  }
  const before = "now() - make_interval(secs => $2)";
  const old = `SELECT ctid FROM ${table} WHERE consumer = $1 AND recorded_at < ${before} ORDER BY recorded_at LIMIT $3`;
  return withClient(db, async (client) => {
    const { rowCount } = await client.query(`DELETE FROM ${table} WHERE ctid IN (${old})`, [consumer, ageSeconds, countMax]);
    return rowCount ?? 0;
  });
}

function sqliteOnce<T>(db: SqliteDatabase, key: Key, work: (db: SqliteDatabase) => T, options?: InboxOptions): Once<T> {
  const joined = db.inTransaction;
  // A savepoint in a transaction that is open undoes our part and leaves the rest to its owner.
  db.exec(joined ? "SAVEPOINT tidewheel_inbox" : "BEGIN IMMEDIATE");
  try {
    const outcome: Once<T> = record(db, key, options) ? { skipped: false, value: done(work(db)) } : { skipped: true };
    db.exec(joined ? "RELEASE tidewheel_inbox" : "COMMIT");
    return outcome;
  } catch (error) {
    if (db.inTransaction) db.exec(joined ? "ROLLBACK TO tidewheel_inbox; RELEASE tidewheel_inbox" : "ROLLBACK");
    throw error;
  }
}

/** A promise would be at work after the commit, outside of the transaction. */
function done<T>(value: T): T {
  if (typeof value === "object" && value !== null && "then" in value) {
    // It goes on all the same. How it ends is nobody's business any more, and must not end the process.
    Promise.resolve(value).catch(() => undefined);
    throw new TypeError("with SQLite the work must be synchronous");
  }
  return value;
}

async function pgOnce<T>(client: PgClient, key: Key, work: (client: PgClient) => Promise<T>, options?: InboxOptions): Promise<Once<T>> {
  await client.query("BEGIN");
  try {
    const outcome: Once<T> = (await record(client, key, options)) ? { skipped: false, value: await work(client) } : { skipped: true };
    // A transaction in which a statement failed is rolled back, without an error, although the work has caught that one.
    const { command } = await client.query("COMMIT");
    if (command === "ROLLBACK") {
      throw new TidewheelError("the database rolled the work back, since a statement in it failed; let the work throw, or use a savepoint");
    }
    return outcome;
  } catch (error) {
    // When the connection is gone, so is the transaction.
    await client.query("ROLLBACK").catch(() => undefined);
    throw error;
  }
}

async function withClient<T>(db: PgClient | PgPool, use: (client: PgClient) => Promise<T>): Promise<T> {
  if (!("totalCount" in db)) return use(db);
  const client = await db.connect();
  const events = client as PgClient & Partial<ConnectionEvents>;
  // A connection that breaks says so besides failing its statements, and the pool does not listen while it is lent: unheard,
  // that would end the process, and all jobs with it.
  const hear = () => undefined;
  events.on?.("error", hear);
  try {
    const value = await use(client);
    client.release();
    return value;
  } catch (error) {
    // It may be in the middle of anything: the pool makes a new one.
    client.release(true);
    throw error;
  } finally {
    events.off?.("error", hear);
  }
}

/** What connections of `pg` have as emitters of events. */
interface ConnectionEvents {
  on(event: "error", listener: () => void): unknown;
  off(event: "error", listener: () => void): unknown;
}

function isSqlite(db: SqliteDatabase | PgClient | PgPool): db is SqliteDatabase {
  return "prepare" in db && "inTransaction" in db;
}

function textOf(key: Key): string {
  return typeof key === "string" ? key : key.job.idempotencyKey;
}

/** The time as the table in SQLite has it. */
function epochSeconds(): number {
  return Date.now() / 1_000;
}

/** The table's name. A name cannot be a parameter, and is not quoted: the Python package means the same table by it. */
function nameOf(options: InboxOptions | undefined): string {
  const table = options?.table ?? TABLE_DEFAULT;
  if (!NAME.test(table)) throw new RangeError(`${JSON.stringify(table)} is not the name of a table`);
  return table;
}

/** What makes the table and its index, as the Python package does. */
function tableOf(options: InboxOptions | undefined, database: "sqlite" | "postgres"): string[] {
  const table = nameOf(options);
  const [name = "", schema] = table.split(".").reverse();
  const index = `${name}_recorded_at`;
  const time = database === "sqlite" ? "REAL" : "timestamptz";
  // SQLite has the schema before the name of the index, PostgreSQL before that of the table.
  const indexed = database === "sqlite" && schema !== undefined ? `${schema}.${index} ON ${name}` : `${index} ON ${table}`;
  return [
    `CREATE TABLE IF NOT EXISTS ${table} (consumer text NOT NULL, key text NOT NULL, recorded_at ${time} NOT NULL, PRIMARY KEY (consumer, key))`,
    `CREATE INDEX IF NOT EXISTS ${indexed} (recorded_at)`,
  ];
}
