INSERT INTO leases (name, epoch) VALUES ($1, nextval('epochs'))
ON CONFLICT (name) DO UPDATE SET epoch = nextval('epochs')
RETURNING epoch
