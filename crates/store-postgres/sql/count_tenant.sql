SELECT state, sum(count)::bigint FROM (
    SELECT state, count FROM counts WHERE tenant = $1
    UNION ALL
    SELECT state, delta FROM tallies WHERE number >= (SELECT settled FROM marks) AND tenant = $1) c
GROUP BY state
