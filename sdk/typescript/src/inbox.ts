/**
 * The inbox: skips deliveries whose work was done before.
 *
 * Jobs are delivered at least once. A handler that writes to a database records the job's idempotency key in the same
 * transaction as its work; when the job comes again, the key is there and the work is skipped. Either both are
 * committed or neither is.
 *
 * PostgreSQL (`pg`) and SQLite (`better-sqlite3`) are used through the objects the caller has anyway.
 *
 * @packageDocumentation
 */
import { TidewheelError } from "./errors.js";

/** The name of the table, unless another is given. */
export const TABLE_DEFAULT = "tidewheel_inbox";

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
}

/** Makes the table, where it is not there yet. */
export function createTable(db: SqliteDatabase, options?: InboxOptions): void;
export function createTable(db: PgClient | PgPool, options?: InboxOptions): Promise<void>;
export function createTable(db: SqliteDatabase | PgClient | PgPool, options?: InboxOptions): void | Promise<void> {
  const table = quoted(options);
  if (isSqlite(db)) {
    db.exec(`CREATE TABLE IF NOT EXISTS ${table} (key TEXT PRIMARY KEY, recorded_at TEXT NOT NULL DEFAULT (datetime('now'))) WITHOUT ROWID`);
    return undefined;
  }
  const sql = `CREATE TABLE IF NOT EXISTS ${table} (key text PRIMARY KEY, recorded_at timestamptz NOT NULL DEFAULT now())`;
  return withClient(db, async (client) => {
    await client.query(sql);
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
  const insert = `INSERT INTO ${quoted(options)} (key) VALUES`;
  if (isSqlite(db)) return db.prepare(`${insert} (?) ON CONFLICT DO NOTHING`).run(textOf(key)).changes === 1;
  return db.query(`${insert} ($1) ON CONFLICT DO NOTHING`, [textOf(key)]).then(({ rowCount }) => rowCount === 1);
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
 * Forgets keys recorded longer ago than `days`. A key must stay as long as its job may come again: longer than its
 * retries take, and than anybody might replay it.
 *
 * @returns How many.
 */
export function prune(db: SqliteDatabase, days: number, options?: InboxOptions): number;
export function prune(db: PgClient | PgPool, days: number, options?: InboxOptions): Promise<number>;
export function prune(db: SqliteDatabase | PgClient | PgPool, days: number, options?: InboxOptions): number | Promise<number> {
  const del = `DELETE FROM ${quoted(options)} WHERE recorded_at <`;
  if (isSqlite(db)) return db.prepare(`${del} datetime('now', ?)`).run(`-${days} days`).changes;
  return withClient(db, async (client) => {
    const { rowCount } = await client.query(`${del} now() - make_interval(secs => $1)`, [days * 86_400]);
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
  try {
    const value = await use(client);
    client.release();
    return value;
  } catch (error) {
    // It may be in the middle of anything: the pool makes a new one.
    client.release(true);
    throw error;
  }
}

function isSqlite(db: SqliteDatabase | PgClient | PgPool): db is SqliteDatabase {
  return "prepare" in db && "inTransaction" in db;
}

function textOf(key: Key): string {
  return typeof key === "string" ? key : key.job.idempotencyKey;
}

function quoted(options: InboxOptions | undefined): string {
  const parts = (options?.table ?? TABLE_DEFAULT).split(".");
  return parts.map((part) => `"${part.replaceAll('"', '""')}"`).join(".");
}
