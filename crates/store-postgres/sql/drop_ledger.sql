DELETE FROM ledger WHERE decided_at < $1
