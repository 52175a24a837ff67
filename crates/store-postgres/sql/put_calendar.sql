INSERT INTO calendars (tenant, name, dates) VALUES ($1, $2, $3)
ON CONFLICT (tenant, name) DO UPDATE SET dates = excluded.dates
