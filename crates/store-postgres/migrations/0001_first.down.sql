-- Everything goes, jobs included.
DROP TABLE documents, nodes, shard_leases, leases, checkpoints, calendars, ledger, schedules, keys, marks, tallies, counts, early_ends,
    dead_letters, attempts, timers, agenda, events, jobs, settings;
DROP SEQUENCE epochs, ledger_numbers, numbers;
