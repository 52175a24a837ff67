//! Reading one JSON object field by field. The text is scanned once for its fields, whose values stay slices of
//! it; each is then read as what it must be. Nothing stops at the first fault.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tidewheel_core::time::{InvalidTimestamp, Timestamp};

use super::fault::{At, Code, Faults, Place, nearest, shown};

/// Unknown fields told of one object.
const UNKNOWN_COUNT_MAX: usize = 20;

/// A field as it was sent.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    name: &'a str,
    raw: &'a str,
}

/// The fields an object may have. Made by [`known_fields!`](crate::known_fields).
pub trait KnownFields<'a>: Default {
    /// Their names.
    const NAMES: &'static [&'static str];
    /// Where the field of that name goes.
    fn slot(&mut self, name: &str) -> Option<&mut Option<Field<'a>>>;
    /// Forgets fields that are `null`, which is another way of leaving them out.
    fn forget_nulls(&mut self);
}

/// Declares a struct whose members are the fields an object may have.
#[macro_export]
#[doc(hidden)]
macro_rules! known_fields {
    ($name:ident { $($field:ident = $text:literal),+ $(,)? }) => {
        #[derive(Default)]
        struct $name<'a> {
            $($field: Option<$crate::wire::read::Field<'a>>,)+
        }

        impl<'a> $crate::wire::read::KnownFields<'a> for $name<'a> {
            const NAMES: &'static [&'static str] = &[$($text),+];

            fn slot(&mut self, name: &str) -> Option<&mut Option<$crate::wire::read::Field<'a>>> {
                match name {
                    $($text => Some(&mut self.$field),)+
                    _ => None,
                }
            }

            fn forget_nulls(&mut self) {
                $($crate::wire::read::forget_null(&mut self.$field);)+
            }
        }
    };
}

/// Forgets a field that is `null`; a payload may be `null` and mean it.
pub fn forget_null(field: &mut Option<Field<'_>>) {
    if field.is_some_and(|field| field.raw == "null" && field.name != "payload") {
        *field = None;
    }
}

/// Reads a whole body as one object.
pub fn body<'a, K: KnownFields<'a>>(text: &'a str, at: &At<'_>, faults: &mut Faults) -> Option<K> {
    if text.trim_ascii().is_empty() {
        faults.add(Code::MalformedJson, at, "the body is empty; a JSON object is expected");
        return None;
    }
    object(text, at, faults)
}

/// Reads a whole body as one object; an empty body is an object without fields.
pub fn optional_body<'a, K: KnownFields<'a>>(text: &'a str, at: &At<'_>, faults: &mut Faults) -> Option<K> {
    if text.trim_ascii().is_empty() { Some(K::default()) } else { body(text, at, faults) }
}

/// Reads a whole body as changes to something: a field that is `null` is there, and says to forget.
pub fn changes<'a, K: KnownFields<'a>>(text: &'a str, at: &At<'_>, faults: &mut Faults) -> Option<K> {
    if text.trim_ascii().is_empty() {
        faults.add(Code::MalformedJson, at, "the body is empty; a JSON object is expected");
        return None;
    }
    fields(text, at, faults)
}

/// Whether `text` is an object that has a field of that name.
#[must_use]
pub fn has_field(text: &str, name: &str) -> bool {
    // Most bodies do not, and need no second scan to say so.
    text.contains(name) && entries(text).is_some_and(|entries| entries.iter().any(|(key, _)| key == name))
}

/// The fields of an object as they were sent; `None` if `text` is something else.
pub(crate) fn entries(text: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    scan_object(text.trim_ascii(), EntriesSeed).ok().flatten()
}

/// Reads `text` as an object.
pub fn object<'a, K: KnownFields<'a>>(text: &'a str, at: &At<'_>, faults: &mut Faults) -> Option<K> {
    let mut known: K = fields(text, at, faults)?;
    known.forget_nulls();
    Some(known)
}

fn fields<'a, K: KnownFields<'a>>(text: &'a str, at: &At<'_>, faults: &mut Faults) -> Option<K> {
    let begun = text.trim_ascii_start();
    let scan = match scan_object::<Fields<'a, K>>(begun.trim_ascii_end(), FieldsSeed(PhantomData)) {
        Ok(Some(scan)) => scan,
        Ok(None) => {
            wrong_type("an object", begun, at, faults);
            return None;
        }
        Err(fault) => {
            let (blank, _) = text.as_bytes().split_at(text.len() - begun.len());
            let detail = malformed(&fault, faults.place().after(blank));
            faults.add(Code::MalformedJson, at, detail);
            return None;
        }
    };
    for name in scan.unknown {
        let known = match nearest(&name, K::NAMES) {
            Some(known) => format!("the nearest known one is `{known}`"),
            None => format!("the known ones are {}", K::NAMES.join(", ")),
        };
        let detail = format!("there is no field {:?}; {known}", shown(&name));
        faults.add(Code::UnknownField, &at.field(&name), detail);
    }
    for name in scan.twice {
        faults.add(
            Code::DuplicateField,
            &at.field(&name),
            format!("the field {:?} is given twice", shown(&name)),
        );
    }
    Some(scan.known)
}

/// Says what is wrong with a text that begins there in the body, and where in the body that is.
fn malformed(fault: &serde_json::Error, begins: Place) -> String {
    let text = fault.to_string();
    let within = format!(" at line {} column {}", fault.line(), fault.column());
    let what = text.strip_suffix(&within).unwrap_or(&text);
    let (line, column) = begins.line_and_column(fault.line(), fault.column());
    format!("the body is not JSON: {what} at line {line} column {column}")
}

/// What one object was found to have.
struct Fields<'a, K> {
    known: K,
    unknown: Vec<Cow<'a, str>>,
    twice: Vec<Cow<'a, str>>,
}

struct FieldsSeed<K>(PhantomData<K>);

impl<'de, K: KnownFields<'de>> DeserializeSeed<'de> for FieldsSeed<K> {
    type Value = Fields<'de, K>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, K: KnownFields<'de>> Visitor<'de> for FieldsSeed<K> {
    type Value = Fields<'de, K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields { known: K::default(), unknown: Vec::new(), twice: Vec::new() };
        while let Some(Key(key)) = map.next_key()? {
            let raw: &'de RawValue = map.next_value()?;
            let known = K::NAMES.iter().copied().find(|name| *name == key);
            match (known, fields.known.slot(&key)) {
                (Some(name), Some(slot)) if slot.is_none() => *slot = Some(Field { name, raw: raw.get() }),
                (Some(_), Some(_)) if fields.twice.len() < UNKNOWN_COUNT_MAX => fields.twice.push(key),
                (None, _) | (_, None) if fields.unknown.len() < UNKNOWN_COUNT_MAX => fields.unknown.push(key),
                (None | Some(_), None | Some(_)) => {}
            }
        }
        Ok(fields)
    }
}

/// A field's name: a slice of the text, unless it is written with escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Key<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a field's name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// Scans `text` if it is an object; `None` if it is some other JSON.
fn scan_object<'a, T>(
    text: &'a str,
    seed: impl DeserializeSeed<'a, Value = T>,
) -> Result<Option<T>, serde_json::Error> {
    if !text.starts_with('{') {
        // Told apart from text that is no JSON at all.
        return serde_json::from_str::<&RawValue>(text).map(|_| None);
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Some(found))
}

struct EntriesSeed;

impl<'de> DeserializeSeed<'de> for EntriesSeed {
    type Value = Vec<(Cow<'de, str>, &'de str)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntriesSeed {
    type Value = Vec<(Cow<'de, str>, &'de str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            let raw: &'de RawValue = map.next_value()?;
            entries.push((key, raw.get()));
        }
        Ok(entries)
    }
}

struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Vec<&'de str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(raw) = items.next_element::<&'de RawValue>()? {
            found.push(raw.get());
        }
        Ok(found)
    }
}

impl<'a> Field<'a> {
    /// An item of an array, read as if it were a field.
    #[must_use]
    pub const fn item(raw: &'a str) -> Self {
        Self { name: "", raw }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Its value as it was sent.
    #[must_use]
    pub const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether its value is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.raw == "null"
    }

    /// Notes that its value is not valid.
    pub fn refuse(&self, code: Code, at: &At<'_>, faults: &mut Faults, detail: impl Into<String>) {
        if self.name.is_empty() {
            faults.add(code, at, detail);
        } else {
            faults.add(code, &at.field(self.name), detail);
        }
    }

    /// Notes that its value is of another type than it must be.
    pub(super) fn expected(&self, what: &str, at: &At<'_>, faults: &mut Faults) {
        if self.name.is_empty() {
            wrong_type(what, self.raw, at, faults);
        } else {
            wrong_type(what, self.raw, &at.field(self.name), faults);
        }
    }

    /// Its value as text of any kind.
    pub fn free_text(&self, at: &At<'_>, faults: &mut Faults) -> Option<Cow<'a, str>> {
        let text = string(self.raw);
        match (&text, self.raw.starts_with('"')) {
            (Some(_), _) => {}
            (None, true) => {
                self.refuse(Code::MalformedJson, at, faults, "an escape in the text stands for no character")
            }
            (None, false) => self.expected("a string", at, faults),
        }
        text
    }

    /// Its value as text without control characters: it may end up in a header, a log or a terminal.
    pub fn text(&self, at: &At<'_>, faults: &mut Faults) -> Option<Cow<'a, str>> {
        let text = self.free_text(at, faults)?;
        if let Some(found) = text.chars().find(|c| c.is_control()) {
            self.refuse(
                Code::ControlCharacter,
                at,
                faults,
                format!("the control character {found:?} is not allowed here"),
            );
            return None;
        }
        Some(text)
    }

    /// Its value as one of a few names.
    pub fn one_of<T>(
        &self,
        names: &[&'static str],
        parse: impl Fn(&str) -> Option<T>,
        at: &At<'_>,
        faults: &mut Faults,
    ) -> Option<T> {
        let text = self.text(at, faults)?;
        let found = parse(&text);
        if found.is_none() {
            let near = nearest(&text, names).map(|near| format!("; the nearest is `{near}`"));
            let near = near.unwrap_or_default();
            let detail = format!("{:?} is none of {}{near}", shown(&text), names.join(", "));
            self.refuse(Code::InvalidValue, at, faults, detail);
        }
        found
    }

    /// Its value as an instant.
    pub fn time(&self, at: &At<'_>, faults: &mut Faults) -> Option<Timestamp> {
        let (time, fault) = self.instant(at, faults)?;
        if let Some(fault) = fault {
            self.refuse(Code::InvalidValue, at, faults, fault.to_string());
            return None;
        }
        Some(time)
    }

    /// Its value as an instant, for what has a bound of its own: what is later than the latest there is, is
    /// [`Timestamp::MAX`].
    pub(super) fn time_to_bound(&self, at: &At<'_>, faults: &mut Faults) -> Option<Timestamp> {
        self.instant(at, faults).map(|(time, _)| time)
    }

    /// Its value as an instant, and what is to be said of it if it is too late for one.
    fn instant(&self, at: &At<'_>, faults: &mut Faults) -> Option<(Timestamp, Option<InvalidTimestamp>)> {
        match self.free_text(at, faults)?.parse::<Timestamp>() {
            Ok(time) => Some((time, None)),
            Err(fault @ InvalidTimestamp::TooLate { .. }) => Some((Timestamp::MAX, Some(fault))),
            Err(fault @ InvalidTimestamp::Unreadable { .. }) => {
                self.refuse(Code::InvalidTime, at, faults, fault.to_string());
                None
            }
        }
    }

    /// Its value as a truth.
    pub fn boolean(&self, at: &At<'_>, faults: &mut Faults) -> Option<bool> {
        match self.raw {
            "true" => Some(true),
            "false" => Some(false),
            _ => {
                self.expected("true or false", at, faults);
                None
            }
        }
    }

    /// Its value as an object with known fields.
    pub fn object<K: KnownFields<'a>>(&self, at: &At<'_>, faults: &mut Faults) -> Option<K> {
        object(self.raw, &at.field(self.name), faults)
    }

    /// Its value as a map of names to texts, in the order sent.
    pub fn texts(&self, at: &At<'_>, faults: &mut Faults) -> Option<Vec<(Cow<'a, str>, Cow<'a, str>)>> {
        let at = at.field(self.name);
        let Ok(Some(entries)) = scan_object(self.raw, EntriesSeed) else {
            wrong_type("an object whose values are strings", self.raw, &at, faults);
            return None;
        };
        let mut texts = Vec::with_capacity(entries.len());
        for (name, raw) in entries {
            if let Some(found) = name.chars().find(|c| c.is_control()) {
                let detail = format!("the name holds the control character {found:?}");
                faults.add(Code::ControlCharacter, &at, detail);
            } else if let Some(text) = Field::item(raw).text(&at.field(&name), faults) {
                texts.push((name, text));
            }
        }
        Some(texts)
    }

    /// Its value as an array, item by item.
    pub fn items(&self, at: &At<'_>, faults: &mut Faults) -> Option<Vec<&'a str>> {
        let found = match self.raw.as_bytes().first() {
            Some(b'[') => serde_json::Deserializer::from_str(self.raw).deserialize_seq(ItemsVisitor).ok(),
            Some(_) | None => None,
        };
        if found.is_none() {
            self.expected("an array", at, faults);
        }
        found
    }
}

/// The text a JSON string stands for.
fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str::<String>(raw).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

fn wrong_type(expected: &str, raw: &str, at: &At<'_>, faults: &mut Faults) {
    let found = match raw.as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    };
    faults.add(Code::WrongType, at, format!("expected {expected}, found {found}"));
}
