INSERT INTO tallies (tenant, state, delta) VALUES ($1, $2, $3)
