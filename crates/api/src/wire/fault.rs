//! What can be wrong with a request: a closed list of codes that never change their meaning, and faults that say
//! where in the request they are.

use memchr::{memchr_iter, memrchr};

/// How many faults one answer names; a hostile batch could have millions.
pub const FAULTS_COUNT_MAX: usize = 100;
/// How much of a name that came with a request is repeated in the answer, in characters.
const NAME_CHARS_MAX: usize = 64;

/// Declares the codes once, so that none can lack a status or a title.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $status:literal, $title:literal;)+) => {
        /// A stable name for what went wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Code {
            /// All of them, by status.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Its name on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The HTTP status it is answered with.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            /// What it means, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)+ }
            }

            /// What it means and what to do about it.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+),)+ }
            }
        }
    };
}

codes! {
    /// The body is not JSON. The detail names the line and the column.
    MalformedJson = "malformed_json", 400, "The body is not JSON";
    /// A header or the body's encoding cannot be read.
    MalformedRequest = "malformed_request", 400, "The request cannot be read";
    /// A text holds a line break, an escape or another control character where none can be meant.
    ControlCharacter = "control_character", 400, "A text holds a control character";
    /// The payload nests deeper than some readers can follow. Flatten it.
    PayloadTooDeep = "payload_too_deep", 400, "The payload nests too deep";
    /// The query has a parameter that this call does not know.
    UnknownParameter = "unknown_parameter", 400, "There is no such query parameter";
    /// A query parameter's value cannot be used.
    InvalidParameter = "invalid_parameter", 400, "A query parameter is not valid";
    /// The cursor is not one that a list handed out. Start again without it.
    InvalidCursor = "invalid_cursor", 400, "The cursor is not valid";
    /// The tenant's name is not one a tenant can have.
    InvalidTenant = "invalid_tenant", 400, "The tenant's name is not valid";
    /// No key was shown, or one that is not known, was revoked or has ended.
    Unauthorized = "unauthorized", 401, "A key is needed";
    /// The key is not for this: its roles, its tenant, the job types and queues it is limited to, or who may submit the type.
    Forbidden = "forbidden", 403, "The key does not allow this";
    /// A browser sent the request from a page of another site, or a server without keys was asked for by a name that is not
    /// this machine's.
    CrossSite = "cross_site_request", 403, "The request comes from another site";
    /// Nothing is served at this address.
    NotFound = "not_found", 404, "Nothing is here";
    /// The tenant has no job of this id: it never had, or the job's history was dropped.
    JobNotFound = "job_not_found", 404, "There is no such job";
    /// The tenant has no schedule of this id or name.
    ScheduleNotFound = "schedule_not_found", 404, "There is no such schedule";
    /// The tenant has no calendar of this name.
    CalendarNotFound = "calendar_not_found", 404, "There is no such calendar";
    /// There is no such tenant, or the key belongs to another.
    TenantNotFound = "tenant_not_found", 404, "There is no such tenant";
    /// The tenant has no key of this id: it never had, or it was revoked.
    KeyNotFound = "key_not_found", 404, "There is no such key";
    /// The tenant has no webhook secret of this id.
    SecretNotFound = "webhook_secret_not_found", 404, "There is no such webhook secret";
    /// Nothing is registered for the job type.
    TypeNotFound = "type_not_found", 404, "Nothing is registered for the type";
    /// The address is served, but not with this method. `Allow` names those it is served with.
    MethodNotAllowed = "method_not_allowed", 405, "The method is not allowed here";
    /// The body came too slowly.
    RequestTimeout = "request_timeout", 408, "The request took too long to arrive";
    /// The idempotency key belongs to something made by a different request. Use another key for another request.
    IdempotencyConflict = "idempotency_conflict", 409, "The idempotency key was used for something else";
    /// The attempt this token belongs to is over, or was given to another runner. Stop working on it.
    StaleToken = "stale_token", 409, "The token is stale";
    /// The job is being run, so it cannot be changed. Wait for the attempt to end, or cancel the job.
    JobRunning = "job_running", 409, "The job is running";
    /// The job has ended, so it cannot be changed. Retry it to run it again.
    JobFinished = "job_finished", 409, "The job has ended";
    /// The job has not ended, so it cannot be run again.
    JobNotFinished = "job_not_finished", 409, "The job has not ended";
    /// Only dead jobs are dead letters.
    NotADeadLetter = "not_a_dead_letter", 409, "The job is not a dead letter";
    /// The job has been run as often as a job can be. Submit a new one.
    TooManyAttempts = "too_many_attempts", 409, "The job cannot be run again";
    /// The job does not allow this now.
    JobConflict = "job_conflict", 409, "The job does not allow this now";
    /// Another schedule of the tenant has the name. Choose another, or change that one.
    NameTaken = "name_taken", 409, "The name is taken";
    /// Schedules name the calendar, so it cannot be deleted. Change them first.
    CalendarInUse = "calendar_in_use", 409, "The calendar is in use";
    /// The tenant has as many keys, webhook secrets, schedules or registered types as it may. Remove some, or have the limit raised.
    LimitReached = "limit_reached", 409, "There are as many as may be";
    /// It is the only webhook secret, or it is there already.
    SecretConflict = "webhook_secret_conflict", 409, "The webhook secret stays as it is";
    /// It was changed since it was read. Read it again, and decide again.
    StaleVersion = "stale_version", 412, "It has another version by now";
    /// The payload is larger than a job may carry. Store it elsewhere and send a reference.
    PayloadTooLarge = "payload_too_large", 413, "The payload is too large";
    /// The body is larger than this call takes.
    BodyTooLarge = "body_too_large", 413, "The body is too large";
    /// The batch has too many jobs or too many bytes. Send it in parts.
    BatchTooLarge = "batch_too_large", 413, "The batch is too large";
    /// The body is of a type that is certainly not JSON. Send `Content-Type: application/json`.
    UnsupportedMediaType = "unsupported_media_type", 415, "The body is not of a type that is read here";
    /// Several different things are wrong; `errors` names each.
    InvalidRequest = "invalid_request", 422, "The request has several faults";
    /// The request has a field that this call does not know. The detail names the nearest one it does.
    UnknownField = "unknown_field", 422, "There is no such field";
    /// A field is given twice.
    DuplicateField = "duplicate_field", 422, "A field is given twice";
    /// A field that must be there is not.
    MissingField = "missing_field", 422, "A field is missing";
    /// Two fields exclude each other.
    ConflictingFields = "conflicting_fields", 422, "Two fields exclude each other";
    /// A field is of another JSON type than it must be.
    WrongType = "wrong_type", 422, "A field has the wrong type";
    /// A field's value is outside what it may be.
    InvalidValue = "invalid_value", 422, "A field's value is not valid";
    /// A time is not an RFC 3339 instant with an offset.
    InvalidTime = "invalid_time", 422, "A time cannot be read";
    /// A duration is none of `90s`, `1h30m`, `PT90S` and a number of seconds.
    InvalidDuration = "invalid_duration", 422, "A duration cannot be read";
    /// The job is set for a time too far back or too far ahead.
    RunAtOutOfRange = "run_at_out_of_range", 422, "The time to run at is out of range";
    /// The target cannot be delivered to: its URL, method or headers, or the network it lies in.
    InvalidTarget = "invalid_target", 422, "The target is not allowed";
    /// The cron expression cannot be read, or its dates never come. The detail says where and what to write instead.
    InvalidCron = "invalid_cron", 422, "The cron expression is not valid";
    /// The time zone is not in the time zone database. The detail names the nearest one that is.
    InvalidTimezone = "invalid_timezone", 422, "There is no such time zone";
    /// The schedule would fire more often than the tenant's minimum interval allows.
    IntervalTooShort = "interval_too_short", 422, "The schedule fires too often";
    /// The request has more jobs than may ever wait of the tenant. Send them in parts, or have the limit raised.
    BatchOverLimit = "batch_over_limit", 422, "More jobs at once than may ever wait";
    /// The schedule names a calendar that the tenant does not have. Create it first.
    UnknownCalendar = "unknown_calendar", 422, "The schedule names a calendar that does not exist";
    /// The payload is not what the schema of its job type asks for. `errors` says where.
    InvalidPayload = "invalid_payload", 422, "The payload does not match the schema of its type";
    /// The schema is none that payloads can be checked with: it is not valid, or its cost could not be bounded.
    InvalidSchema = "invalid_schema", 422, "The schema cannot be used";
    /// The tenant submits faster than its limit. `Retry-After` says when this request would be taken.
    RateLimited = "rate_limited", 429, "The tenant submits too fast";
    /// As many jobs of the tenant wait as may. `Retry-After` is a guess from how fast they have been done lately.
    TooManyWaiting = "too_many_waiting", 429, "Too many jobs of the tenant wait";
    /// Too many keys that are none came from the caller's address.
    TooManyWrongKeys = "too_many_wrong_keys", 429, "Too many wrong keys";
    /// Something broke inside the server. Its log says what.
    Internal = "internal", 500, "The server failed";
    /// The store does not answer now. Try again.
    StoreUnavailable = "store_unavailable", 503, "The store is not available";
    /// The store has no room left. The operator must free some disk space.
    StoreFull = "store_full", 503, "The store is full";
    /// The store takes no writes until the server is restarted, because a sync to disk failed.
    StoreReadOnly = "store_read_only", 503, "The store takes no writes";
    /// The server is stopping. Another one, or this one restarted, will answer.
    Draining = "draining", 503, "The server is stopping";
    /// The server has as many connections, or holds as many bytes of unfinished requests or of answers that are not read
    /// yet, as it may, or it stores so many jobs that those of this priority must wait. Try again.
    Overloaded = "overloaded", 503, "The server is busy";
}

/// One thing wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What kind of thing.
    pub code: Code,
    /// Where: a JSON pointer (RFC 6901) into the body.
    pub pointer: String,
    /// What exactly, and what would be right.
    pub detail: String,
}

/// Everything wrong with a request, as far as it is told.
#[derive(Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    untold: usize,
    /// Where in the body the text begins that is read.
    place: Place,
}

impl Faults {
    /// Says where in the body the text begins that is read next: what is wrong with it is told with its place in the body.
    pub const fn read_from(&mut self, place: Place) {
        self.place = place;
    }

    /// Where in the body the text begins that is read.
    #[must_use]
    pub const fn place(&self) -> Place {
        self.place
    }

    /// Notes a fault.
    pub fn add(&mut self, code: Code, at: &At<'_>, detail: impl Into<String>) {
        if self.list.len() < FAULTS_COUNT_MAX {
            self.list.push(Fault { code, pointer: at.pointer(), detail: detail.into() });
        } else {
            self.untold += 1;
        }
    }

    /// Notes what is wrong with a part that was read by itself, and stands here.
    pub fn append(&mut self, at: &At<'_>, part: Self) {
        let place = at.pointer();
        self.untold += part.untold;
        for Fault { code, pointer, detail } in part.list {
            if self.list.len() < FAULTS_COUNT_MAX {
                self.list.push(Fault { code, pointer: format!("{place}{pointer}"), detail });
            } else {
                self.untold += 1;
            }
        }
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether nothing is wrong with a job or a schedule but that it is late: asked for earlier, it may have been right.
    #[must_use]
    pub fn are_of_time(&self) -> bool {
        let is_late = |Fault { code, pointer, .. }: &Fault| {
            *code == Code::RunAtOutOfRange
                || (*code == Code::InvalidValue && ["/expires_at", "/end_at"].contains(&pointer.as_str()))
        };
        !self.list.is_empty() && self.list.iter().all(is_late)
    }

    /// How many there were, told or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.untold
    }

    /// The faults that are told.
    #[must_use]
    pub fn into_list(self) -> Vec<Fault> {
        self.list
    }
}

/// A place in the text of a body; at first, its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Lines before its own.
    lines: usize,
    /// Bytes before it on its own.
    bytes: usize,
}

impl Place {
    /// The place after these bytes, which begin here.
    #[must_use]
    pub fn after(self, bytes: &[u8]) -> Self {
        match memrchr(b'\n', bytes) {
            None => Self { bytes: self.bytes + bytes.len(), ..self },
            Some(last) => {
                let lines = self.lines + memchr_iter(b'\n', bytes).count();
                Self { lines, bytes: bytes.len() - last - 1 }
            }
        }
    }

    /// The line and the column, from 1, of what has these in the text that begins here.
    #[must_use]
    pub const fn line_and_column(self, line: usize, column: usize) -> (usize, usize) {
        (self.lines + line, if line > 1 { column } else { self.bytes + column })
    }
}

/// A place in a request. Only a fault makes it into text.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> At<'a> {
    /// The request itself.
    pub const ROOT: At<'static> = At { parent: None, step: Step::Root };

    /// A field of what is here.
    #[must_use]
    pub const fn field(&'a self, name: &'a str) -> At<'a> {
        At { parent: Some(self), step: Step::Field(name) }
    }

    /// An item of what is here, from 0.
    #[must_use]
    pub const fn item(&'a self, index: usize) -> At<'a> {
        At { parent: Some(self), step: Step::Item(index) }
    }

    /// As a JSON pointer; empty for the request itself.
    #[must_use]
    pub fn pointer(&self) -> String {
        let mut text = self.parent.map(At::pointer).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Item(index) => {
                text.push('/');
                text.push_str(&index.to_string());
            }
            Step::Field(name) => {
                text.push('/');
                for c in name.chars().take(NAME_CHARS_MAX) {
                    match c {
                        '~' => text.push_str("~0"),
                        '/' => text.push_str("~1"),
                        c => text.push(c),
                    }
                }
            }
        }
        text
    }
}

/// A name as it is repeated in an answer: not too much of it.
#[must_use]
pub fn shown(name: &str) -> &str {
    name.char_indices().nth(NAME_CHARS_MAX).map_or(name, |(end, _)| name.get(..end).unwrap_or(name))
}

/// The one of `known` that is most like `name`, if one is: a name that is nothing like it would lead astray.
#[must_use]
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = shown(name).to_ascii_lowercase();
    let ranked = known.iter().filter_map(|candidate| {
        let rank = likeness(&name, &candidate.to_ascii_lowercase())?;
        Some((rank, *candidate))
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, candidate)| candidate)
}

/// How much a name is like a known one, the least being the most like it: its beginning, a slip of the pen, a part of it,
/// or its short form. `None` when it is none of these.
fn likeness(name: &str, known: &str) -> Option<(u8, usize)> {
    let is_word = name.len() >= 3;
    // The beginning of a name is meant for it, however long the rest is.
    if is_word && known.starts_with(name) {
        return Some((0, 0));
    }
    let distance = strsim::osa_distance(name, known);
    if distance * 3 <= name.chars().count().max(known.chars().count()) {
        return Some((0, distance));
    }
    if is_word && (known.contains(name) || (known.len() >= 3 && name.contains(known))) {
        return Some((1, distance));
    }
    is_short_for(name, known).then_some((2, distance))
}

/// Whether a few letters stand for a longer name, as `tz` does for `timezone`: they are in it, in their order, from the first.
fn is_short_for(name: &str, known: &str) -> bool {
    let mut rest = known.chars();
    (2..=4).contains(&name.len())
        && name.chars().next() == known.chars().next()
        && name.chars().all(|letter| rest.any(|other| other == letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_escaped_and_bounded() {
        let jobs = At::ROOT.field("jobs");
        let item = jobs.item(3);
        assert_eq!(item.field("a/b~c").pointer(), "/jobs/3/a~1b~0c");
        assert_eq!(At::ROOT.pointer(), "");
        assert_eq!(At::ROOT.field(&"ü".repeat(500)).pointer().chars().count(), NAME_CHARS_MAX + 1);
    }

    #[test]
    fn what_is_wrong_with_a_part_is_told_with_its_place() {
        let part = |code: Code, field: &str| {
            let mut faults = Faults::default();
            faults.add(code, &At::ROOT.field(field), "wrong");
            faults
        };
        let mut whole = part(Code::InvalidValue, "end_at");
        assert!(whole.are_of_time() && !Faults::default().are_of_time());
        whole.append(&At::ROOT, part(Code::RunAtOutOfRange, "delay"));
        assert!(whole.are_of_time() && !part(Code::InvalidTime, "end_at").are_of_time());
        whole.append(&At::ROOT.item(3), part(Code::InvalidValue, "a/b"));
        assert_eq!((whole.list[2].pointer.as_str(), whole.are_of_time()), ("/3/a~1b", false));
        for _ in 0..FAULTS_COUNT_MAX {
            whole.append(&At::ROOT, part(Code::MissingField, "c"));
        }
        let mut more = part(Code::MissingField, "d");
        more.append(&At::ROOT, whole);
        assert_eq!((more.count(), more.list.len()), (FAULTS_COUNT_MAX + 4, FAULTS_COUNT_MAX));
    }

    #[test]
    fn places_are_counted_in_the_whole() {
        let text = b"one\ntwo\n\nfour";
        for cut in 0..=text.len() {
            let (first, second) = text.split_at(cut);
            let place = Place::default().after(first).after(second);
            assert_eq!(place, Place { lines: 3, bytes: 4 }, "{cut}");
        }
        let place = Place { lines: 3, bytes: 4 };
        assert_eq!(place.line_and_column(1, 2), (4, 6));
        assert_eq!(place.line_and_column(2, 2), (5, 2));
        assert_eq!(Place::default().line_and_column(1, 1), (1, 1));
    }

    #[test]
    fn no_more_faults_are_kept_than_are_told() {
        let mut faults = Faults::default();
        for index in 0..250 {
            faults.add(Code::WrongType, &At::ROOT.item(index), "x");
        }
        assert_eq!(faults.count(), 250);
        assert_eq!(faults.into_list().len(), FAULTS_COUNT_MAX);
    }

    #[test]
    fn the_nearest_name_is_found_whatever_the_case() {
        assert_eq!(nearest("runAt", &["queue", "run_at", "retry"]), Some("run_at"));
        assert_eq!(nearest("cron", &["name", "cron_expr"]), Some("cron_expr"));
        assert_eq!(nearest("cron", &["ONCE", "CRON"]), Some("CRON"));
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn only_a_name_that_is_like_it_is_the_nearest() {
        let known = ["name", "cron_expr", "every", "timezone", "dst", "target_url", "max_attempts", "retry"];
        for (name, near) in [
            ("tz", Some("timezone")),
            ("zone", Some("timezone")),
            ("time_zone", Some("timezone")),
            ("cron_expression", Some("cron_expr")),
            ("url", Some("target_url")),
            ("attempts", Some("max_attempts")),
            ("rety", Some("retry")),
            ("evry", Some("every")),
            ("colour", None),
            ("x", None),
            ("", None),
            ("ü", None),
        ] {
            assert_eq!(nearest(name, &known), near, "{name}");
        }
        assert_eq!(nearest(&"x".repeat(100_000), &["queue"]), None);
    }

    #[test]
    fn codes_are_unique_and_statuses_are_errors() {
        for (index, code) in Code::ALL.iter().enumerate() {
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert!(!Code::ALL[index + 1..].iter().any(|other| other.as_str() == code.as_str()), "{code:?}");
        }
    }
}
