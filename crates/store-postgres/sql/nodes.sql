SELECT id, address, version, (extract(epoch FROM started_at) * 1000)::bigint AS started_at,
       until > clock_timestamp() AS is_alive
FROM nodes ORDER BY id
