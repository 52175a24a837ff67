-- All shards at once: whoever has leased some has them no longer. The lease of that name never runs out.
WITH opened AS (
    INSERT INTO leases (name, epoch, until) VALUES ($1, nextval('epochs'), 'infinity')
    ON CONFLICT (name) DO UPDATE SET epoch = nextval('epochs')
    RETURNING epoch
), taken AS (
    UPDATE shard_leases SET epoch = opened.epoch, node = NULL, until = 'infinity' FROM opened
)
SELECT epoch FROM opened
