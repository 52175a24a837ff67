-- The audit trail goes.
DROP TABLE audit_pending, audit, audit_chains;
