SELECT state, sum(delta)::bigint FROM tallies WHERE tenant = $1 GROUP BY state
