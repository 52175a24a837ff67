-- Numbered in the order they are given in: the order they were decided in.
INSERT INTO ledger (tenant, schedule, from_at, number, decided_at, record)
SELECT k.tenant, k.schedule, k.from_at, nextval('ledger_numbers'), k.decided_at, k.record
FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[]) WITH ORDINALITY
     AS k(tenant, schedule, from_at, decided_at, record, ord)
ORDER BY k.ord
