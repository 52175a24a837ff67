SELECT state, sum(count)::bigint, tenant FROM (
    SELECT tenant, state, count FROM counts WHERE tenant > ''
    UNION ALL
    SELECT tenant, state, delta FROM tallies WHERE number >= (SELECT settled FROM marks)) c
GROUP BY tenant, state
