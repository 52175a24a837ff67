-- Days are made all the same, more slowly.
DROP INDEX jobs_default_day, events_default_day, ledger_default_day;
