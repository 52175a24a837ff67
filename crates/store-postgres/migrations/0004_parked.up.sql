-- What is parked is moved out by its day: without these, all that is parked would be gone through for it, while everybody waits.
-- Indexes of the day, not of the time, which no other statement can be tempted to go by.
CREATE INDEX jobs_default_day ON jobs_default ((run_at / 86400000));
CREATE INDEX events_default_day ON events_default ((run_at / 86400000));
CREATE INDEX ledger_default_day ON ledger_default ((decided_at / 86400000));
