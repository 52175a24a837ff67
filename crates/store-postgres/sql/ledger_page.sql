SELECT from_at, number, record FROM ledger
WHERE tenant = $1 AND schedule = $2 AND (from_at, number) < ($3::bigint, $4::bigint)
ORDER BY from_at DESC, number DESC LIMIT $5
