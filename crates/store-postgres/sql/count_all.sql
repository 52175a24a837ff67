SELECT state, sum(count)::bigint FROM (
    SELECT state, count FROM counts WHERE tenant = ''
    UNION ALL
    SELECT state, delta FROM tallies WHERE number >= (SELECT settled FROM marks)) c
GROUP BY state
