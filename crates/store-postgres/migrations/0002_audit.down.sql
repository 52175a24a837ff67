-- The audit trail goes.
DROP TABLE audit_mark, audit_pending, audit, audit_chains;
