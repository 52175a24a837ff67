-- Whatever is left of them was run again.
DELETE FROM early_ends WHERE finished_at < $1
