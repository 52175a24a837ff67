DELETE FROM nodes WHERE until < clock_timestamp() - interval '1 day'
