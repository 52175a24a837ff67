INSERT INTO jobs (tenant, run_at, id, shard, kind, spec, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7)
