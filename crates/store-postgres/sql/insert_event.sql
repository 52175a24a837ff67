-- As `insert_events`, for one alone.
INSERT INTO events (tenant, run_at, id, seq, state, attempt, at, body_seq, status)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
