-- Everything goes, jobs included.
DROP TABLE nodes, leases, checkpoints, calendars, ledger, schedules, keys, tallies, dead_letters, running, timers,
    waiting, ends, jobs, settings;
DROP SEQUENCE epochs, ledger_numbers;
