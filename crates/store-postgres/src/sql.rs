//! The statements, each in a file of its own.

macro_rules! statements {
    ($($name:ident = $file:literal;)+) => {
        $(pub(crate) const $name: &str = include_str!(concat!("../sql/", $file, ".sql"));)+
    };
}

statements! {
    FIND_JOBS = "find_jobs";
    FIND_DOCUMENT = "find_document";
    PUT_DOCUMENT = "put_document";
    DELETE_DOCUMENT = "delete_document";
    LIST_DOCUMENTS = "list_documents";
    BEGIN_AUDIT_CHAINS = "begin_audit_chains";
    LOCK_AUDIT_CHAINS = "lock_audit_chains";
    MOVE_AUDIT_CHAINS = "move_audit_chains";
    MOVE_AUDIT_ANCHORS = "move_audit_anchors";
    INSERT_AUDIT = "insert_audit";
    INSERT_AUDIT_PENDING = "insert_audit_pending";
    TAKE_AUDIT_PENDING = "take_audit_pending";
    AUDIT_CHAINS = "audit_chains";
    AUDIT_UP = "audit_up";
    AUDIT_DOWN = "audit_down";
    ACTS_UP = "acts_up";
    ACTS_DOWN = "acts_down";
    CHANGES_UP = "changes_up";
    CHANGES_DOWN = "changes_down";
    DROP_AUDIT = "drop_audit";
    LIST_JOBS = "list_jobs";
    LIST_CHANGED = "list_changed";
    LIST_PLACED = "list_placed";
    ALL_RUNNING = "all_running";
    INSERT_JOBS = "insert_jobs";
    INSERT_EVENTS = "insert_events";
    INSERT_AMENDED = "insert_amended";
    INSERT_AGENDA = "insert_agenda";
    LATE_AGENDA = "late_agenda";
    INSERT_EARLY_ENDS = "insert_early_ends";
    TAKE_MARKS = "take_marks";
    SET_MARKS = "set_marks";
    KEEP_MARKS = "keep_marks";
    NOTE_WRITERS = "note_writers";
    WRITERS_LEFT = "writers_left";
    CONFIRM_AGENDA = "confirm_agenda";
    PROPOSE_AGENDA = "propose_agenda";
    MOVE_STRAGGLERS = "move_stragglers";
    NOTE_ATTEMPTS = "note_attempts";
    FORGET_ATTEMPTS = "forget_attempts";
    INSERT_TIMERS = "insert_timers";
    DELETE_TIMERS = "delete_timers";
    INSERT_DEAD = "insert_dead";
    DELETE_DEAD = "delete_dead";
    INSERT_TALLIES = "insert_tallies";
    FIND_KEYS = "find_keys";
    INSERT_KEYS = "insert_keys";
    DELETE_KEYS = "delete_keys";
    FIND_SCHEDULES = "find_schedules";
    LOCK_SCHEDULES = "lock_schedules";
    INSERT_SCHEDULES = "insert_schedules";
    CHANGE_SCHEDULES = "change_schedules";
    MOVE_SCHEDULES = "move_schedules";
    DELETE_SCHEDULES = "delete_schedules";
    DELETE_LEDGERS = "delete_ledgers";
    INSERT_LEDGER = "insert_ledger";
    FIND_NAMES = "find_names";
    FIND_CALENDARS = "find_calendars";
    FENCE = "fence";
    OPEN_EPOCH = "open_epoch";
    SHARD_FENCE = "shard_fence";
    ANNOUNCE = "announce";
    NODES = "nodes";
    FORGET_NODES = "forget_nodes";
    HOLD_SHARDS = "hold_shards";
    RENEW_SHARDS = "renew_shards";
    RELEASE_SHARDS = "release_shards";
    SHARD_LEASES = "shard_leases";
    HOLD_NAMED = "hold_named";
    NEXT_BUCKET = "next_bucket";
    FRESH_TENANTS = "fresh_tenants";
    TIMER_TENANTS = "timer_tenants";
    DUE_FRESH = "due_fresh";
    DUE_TIMERS = "due_timers";
    DUE_NEXT = "due_next";
    SAVE_CHECKPOINTS = "save_checkpoints";
    COUNT_TENANT = "count_tenant";
    COUNT_ALL = "count_all";
    COUNT_EACH = "count_each";
    LIST_SCHEDULES = "list_schedules";
    SCHEDULE_TENANTS = "schedule_tenants";
    LEDGER_PAGE = "ledger_page";
    PUT_CALENDAR = "put_calendar";
    DROP_OLD = "drop_old";
    DROP_EARLY_ENDS = "drop_early_ends";
    FOLD_TALLIES = "fold_tallies";
    DROP_KEYS = "drop_keys";
    DROP_LEDGER = "drop_ledger";
}
