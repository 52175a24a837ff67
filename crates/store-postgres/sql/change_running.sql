-- A heartbeat, or a target that took the job over: the same attempt, a longer lease.
UPDATE running r SET seq = k.seq, status = k.status
FROM unnest($1::text[], $2::uuid[], $3::integer[], $4::integer[], $5::bytea[]) AS k(tenant, id, old_seq, seq, status)
WHERE r.tenant = k.tenant COLLATE "C" AND r.id = k.id AND r.seq = k.old_seq
