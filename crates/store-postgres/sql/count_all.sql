SELECT state, sum(delta)::bigint FROM tallies GROUP BY state
