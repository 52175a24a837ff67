-- Everything goes, jobs included.
DROP TABLE nodes, shard_leases, leases, checkpoints, calendars, ledger, schedules, keys, tallies, dead_letters, running, timers,
    waiting, ends, jobs, settings;
DROP SEQUENCE epochs, ledger_numbers;
