-- Held until the batch commits: whoever takes the ownership over changes the epoch, and waits for that.
SELECT epoch FROM leases WHERE name = $1 FOR KEY SHARE
