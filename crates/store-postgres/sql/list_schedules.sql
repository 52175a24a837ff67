SELECT id, record FROM schedules WHERE tenant = $1 AND id > $2 ORDER BY tenant, id LIMIT $3
