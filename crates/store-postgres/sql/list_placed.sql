-- One tenant's jobs below an id, latest first, as they stand in some places only: $6 timers, $7 running, $8 dead letters,
-- $9 ends. Those that wait and never ran may be many, and none of them is looked at.
SELECT j.id, j.kind, j.spec, j.payload, false AS fresh, p.place, p.seq, p.status
FROM (SELECT tenant, run_at, id, place, seq, status FROM (
        (SELECT tenant, run_at, id, 1::smallint AS place, seq, status FROM timers
         WHERE $6::boolean AND tenant = $1 AND id < $3 AND run_at >= $4
         ORDER BY tenant DESC, id DESC LIMIT $5)
        UNION ALL
        (SELECT tenant, run_at, id, 2::smallint AS place, seq, status FROM running
         WHERE $7::boolean AND tenant = $1 AND id < $3 AND run_at >= $4
         ORDER BY tenant DESC, id DESC LIMIT $5)
        UNION ALL
        (SELECT tenant, run_at, id, 3::smallint AS place, seq, status FROM dead_letters
         WHERE $8::boolean AND tenant = $1 AND id < $3 AND run_at >= $4
         ORDER BY tenant DESC, id DESC LIMIT $5)
        UNION ALL
        (SELECT tenant, run_at, id, 4::smallint AS place, seq, status FROM ends
         WHERE $9::boolean AND tenant = $1 AND id < $3 AND run_at <= $2 AND run_at >= $4
         ORDER BY tenant DESC, id DESC LIMIT $5)) u
      ORDER BY id DESC LIMIT $5) p
JOIN jobs j ON j.tenant = p.tenant AND j.run_at = p.run_at AND j.id = p.id
ORDER BY j.id DESC
