SELECT state, sum(delta)::bigint, tenant FROM tallies GROUP BY tenant, state
