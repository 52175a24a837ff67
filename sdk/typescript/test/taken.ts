/** Jobs as a stub hands them to a worker. */

/** What a stub answers to a take: jobs of type `t`. */
export function takenAnswer(jobs: readonly { id: string; token: number }[]): { status: number; body: unknown } {
  const taken = jobs.map(({ id, token }) => ({
    id,
    token,
    tenant: "default",
    type: "t",
    payload: null,
    attempt: 1,
    max_attempts: 5,
    idempotency_key: id,
    queue: "default",
    timeout: "5m",
    labels: {},
  }));
  return { status: 200, body: { jobs: taken } };
}
