/** Filters and pages as query parameters. */
import type { JobFilter, PageOptions, Time } from "./job.js";

function time(value: Time | undefined): string | undefined {
  return value instanceof Date ? value.toISOString() : value;
}

/** @internal */
export function filterQuery(filter: JobFilter): Record<string, string | undefined> {
  const { state } = filter;
  const query: Record<string, string | undefined> = {
    state: typeof state === "string" ? state : state?.join(","),
    type: filter.type,
    queue: filter.queue,
    schedule: filter.schedule,
    from: time(filter.from),
    to: time(filter.to),
  };
  for (const [label, value] of Object.entries(filter.labels ?? {})) query[`label.${label}`] = value;
  return query;
}

/** @internal */
export function pageQuery(page: PageOptions): Record<string, string | undefined> {
  return { limit: page.limit?.toString(), cursor: page.cursor };
}
