//! A long body, item by item, as it arrives: a JSON array, an object with a field (`jobs`, say) that is one, or one item per
//! line. Never holds more than one item, so memory does not grow with the body.
//!
//! The splitter finds where items end and leaves judging them to their reader: what is not valid JSON is either
//! refused here or inside an item. An object that begins a body is the wrapper or the first of many items; its first field
//! tells which. A wrapper may have an idempotency key beside the array, where one is looked for; an item may begin with one,
//! too, and then its second field tells.

mod fault;

use memchr::memchr2;
use serde_json::value::RawValue;

pub use self::fault::{SplitFault, SplitLimits};
use super::call_key;
use super::fault::{Place, shown};

/// The field that may wrap the array, unless another is named.
const WRAPPER_DEFAULT: &str = "\"jobs\"";
/// Fields of items that may hold an array. An object that begins with an array of another name is no item.
const ITEM_ARRAYS: [&str; 2] = ["payload", "exclude"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Start,
    /// After `{`, before the first field.
    Brace,
    /// In the name of a field, which begins there in what is held.
    Name { from: usize },
    /// After the name of the key, whose value begins there in what is held.
    Key { from: usize },
    /// After the first field's name, which is not the wrapper's.
    Value { has_colon: bool },
    /// After the wrapper's name, before its colon.
    Colon,
    /// After the colon, before the array.
    Open,
    /// Before an item; the array may end here only if nothing came before.
    Before { may_end: bool },
    /// Inside an item of an array.
    Inside,
    /// After the array; inside its wrapper or not.
    After,
    /// After the comma that follows the array in its wrapper.
    Beside,
    /// After everything.
    End,
    /// One item per line.
    Lines,
}

/// Splits one body.
#[derive(Debug)]
pub struct Splitter {
    limits: SplitLimits,
    wrapper: &'static str,
    /// Whether a wrapper may have a key.
    takes_key: bool,
    /// The key of the wrapper, or of what may turn out to be one, as it was sent.
    key: Option<Box<str>>,
    state: State,
    wrapped: bool,
    /// The beginning of an item whose end has not arrived, or of what may turn out to be a line.
    held: Vec<u8>,
    /// Up to where the body is read.
    place: Place,
    /// Where what is held begins; if nothing is, where the next does.
    begun: Place,
    /// The name of the first field, if it is not the wrapper's.
    name: String,
    depth: usize,
    in_text: bool,
    escaped: bool,
    count: usize,
}

impl Splitter {
    /// A splitter that finds out by itself how the body is made.
    #[must_use]
    pub fn new(limits: SplitLimits) -> Self {
        Self::starting(limits, State::Start)
    }

    /// A splitter of a body that is known to have one item per line.
    #[must_use]
    pub fn lines(limits: SplitLimits) -> Self {
        Self::starting(limits, State::Lines)
    }

    fn starting(limits: SplitLimits, state: State) -> Self {
        let held = Vec::new();
        let wrapper = WRAPPER_DEFAULT;
        Self {
            limits,
            wrapper,
            takes_key: false,
            key: None,
            state,
            wrapped: false,
            held,
            place: Place::default(),
            begun: Place::default(),
            name: String::new(),
            depth: 0,
            in_text: false,
            escaped: false,
            count: 0,
        }
    }

    /// The same, for a body whose array may stand in this field, named with its quotes.
    #[must_use]
    pub const fn wrapped_in(mut self, quoted: &'static str) -> Self {
        self.wrapper = quoted;
        self
    }

    /// The same, for a body that may have an idempotency key beside its array.
    #[must_use]
    pub const fn with_key(mut self) -> Self {
        self.takes_key = true;
        self
    }

    /// The key beside the array, as it was sent.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref().filter(|_| self.wrapped)
    }

    /// Items found so far.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Whether items stand in a field of the body.
    #[must_use]
    pub const fn is_wrapped(&self) -> bool {
        self.wrapped
    }

    /// Takes the next bytes and hands every item they complete to `each`, with its place in the body.
    ///
    /// # Errors
    /// When the body cannot be split; nothing more can be pushed then.
    pub fn push(&mut self, bytes: &[u8], each: &mut impl FnMut(Place, &[u8])) -> Result<(), SplitFault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.held.is_empty() {
                self.begun = self.place;
            }
            let after = match self.state {
                State::Lines => self.line(rest, each)?,
                State::Inside => self.inside(rest, each)?,
                State::Brace => self.brace(rest)?,
                State::Name { from } => self.name(rest, from)?,
                State::Key { from } => self.key_value(rest, from)?,
                State::Value { has_colon } => self.value(rest, has_colon)?,
                State::Start
                | State::Colon
                | State::Open
                | State::Before { .. }
                | State::After
                | State::Beside
                | State::End => self.between(rest)?,
            };
            let (taken, _) = rest.split_at(rest.len() - after.len());
            self.place = self.place.after(taken);
            rest = after;
        }
        Ok(())
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// When something is missing.
    pub fn finish(&mut self, each: &mut impl FnMut(Place, &[u8])) -> Result<(), SplitFault> {
        match self.state {
            State::End => Ok(()),
            State::After if !self.wrapped => Ok(()),
            State::Start => Err(SplitFault::Empty),
            // An object that broke off before it said what it is; its reader will say what is wrong with it.
            State::Lines | State::Brace | State::Name { .. } | State::Key { .. } | State::Value { .. }
                if !self.wrapped =>
            {
                let held = std::mem::take(&mut self.held);
                self.emit(&held, each)
            }
            State::Colon
            | State::Open
            | State::Before { .. }
            | State::Inside
            | State::After
            | State::Beside
            | State::Lines
            | State::Brace
            | State::Name { .. }
            | State::Key { .. }
            | State::Value { .. } => Err(SplitFault::Unfinished),
        }
    }

    /// Everything outside of items: looks at the first byte that is not white space.
    fn between<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], SplitFault> {
        let rest = bytes.trim_ascii_start();
        // By itself, so that what begins after it has its own place.
        if rest.len() < bytes.len() {
            return Ok(rest);
        }
        let Some((byte, after)) = rest.split_first() else { return Ok(rest) };
        let (state, rest) = match (self.state, *byte) {
            (State::Start, b'[') | (State::Open, b'[') => (State::Before { may_end: true }, after),
            (State::Start, b'{') => {
                self.held.push(b'{');
                (State::Brace, after)
            }
            (State::Start, _) => (State::Lines, rest),
            (State::Colon, b':') => (State::Open, after),
            (State::Open, b'{' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                return Err(SplitFault::NoArray { wrapper: self.wrapper });
            }
            (State::Before { may_end: true }, b']') => (State::After, after),
            (State::Before { .. }, b',' | b']') => return Err(self.structure("an item is missing")),
            (State::Before { .. }, _) => (State::Inside, rest),
            (State::After, b'}') if self.wrapped => (State::End, after),
            (State::After, b',') if self.wrapped => (State::Beside, after),
            (State::Beside, b'"') => {
                self.held.push(b'"');
                (State::Name { from: 0 }, after)
            }
            (State::Colon | State::Open, _) => return Err(self.structure("a field without an array")),
            (
                State::After
                | State::Beside
                | State::End
                | State::Brace
                | State::Name { .. }
                | State::Key { .. }
                | State::Value { .. }
                | State::Lines
                | State::Inside,
                _,
            ) => {
                return Err(self.structure("something that does not belong there"));
            }
        };
        self.state = state;
        Ok(rest)
    }

    /// After `{`, or after a key: an object without fields is no item, and no wrapper either. What may still turn out to be a
    /// line is kept, white space and all.
    fn brace<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], SplitFault> {
        let Some((byte, after)) = bytes.split_first() else { return Ok(bytes) };
        match byte {
            b'}' if self.key.is_none() => return Err(SplitFault::NoField { wrapper: self.wrapper }),
            b'"' => self.state = State::Name { from: self.held.len() },
            byte if byte.is_ascii_whitespace() => {}
            _ => {
                self.state = State::Lines;
                return Ok(bytes);
            }
        }
        self.hold(&[*byte])?;
        Ok(after)
    }

    /// In a name: of the first field, or of one beside the array.
    fn name<'a>(&mut self, bytes: &'a [u8], from: usize) -> Result<&'a [u8], SplitFault> {
        let Some((byte, after)) = bytes.split_first() else { return Ok(bytes) };
        // A name has no line break: this is a line that broke off.
        if *byte == b'\n' && !self.wrapped {
            self.escaped = false;
            self.state = State::Lines;
            return Ok(bytes);
        }
        self.hold(&[*byte])?;
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.named(from)?,
            _ => {}
        }
        Ok(after)
    }

    /// At the end of a name.
    fn named(&mut self, from: usize) -> Result<(), SplitFault> {
        let name = serde_json::from_slice::<String>(self.held.get(from..).unwrap_or_default());
        let is_wrapper = name.as_ref().is_ok_and(|name| *name == self.wrapper.trim_matches('"'));
        let is_key = self.takes_key && name.as_ref().is_ok_and(|name| *name == call_key::NAME);
        self.state = match (name, self.wrapped) {
            (Ok(_), true) if is_wrapper => return Err(self.structure("the array a second time")),
            (Ok(_), true) if is_key && self.key.is_some() => {
                return Err(self.structure("the key a second time"));
            }
            (Ok(_), _) if is_key && self.key.is_none() => State::Key { from: self.held.len() },
            (Ok(name), true) => return Err(self.unknown(&name)),
            (Err(_), true) => return Err(self.structure("a name that is no text")),
            (Ok(_), false) if is_wrapper => {
                self.held.clear();
                self.wrapped = true;
                State::Colon
            }
            (Ok(name), false) => {
                self.name = name;
                State::Value { has_colon: false }
            }
            (Err(_), false) => State::Lines,
        };
        Ok(())
    }

    /// After the name of the key, until its value has ended.
    fn key_value<'a>(&mut self, bytes: &'a [u8], from: usize) -> Result<&'a [u8], SplitFault> {
        let Some((byte, after)) = bytes.split_first() else { return Ok(bytes) };
        match byte {
            // A text has no line break: this is a line that broke off.
            b'\n' if self.in_text && !self.wrapped => return Ok(self.no_wrapper(bytes)),
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = self.in_text,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b',' | b'}' | b']' if self.depth == 0 => return self.keyed(bytes, *byte, from),
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.hold(&[*byte])?;
        Ok(after)
    }

    /// At the end of the key's value. Of an object that may be an item what follows is looked at, too.
    fn keyed<'a>(&mut self, bytes: &'a [u8], end: u8, from: usize) -> Result<&'a [u8], SplitFault> {
        let value = std::str::from_utf8(self.held.get(from..).unwrap_or_default()).unwrap_or_default();
        let value = value.trim_ascii_start().strip_prefix(':').unwrap_or_default();
        let key: Option<Box<str>> =
            serde_json::from_str::<&RawValue>(value).ok().map(|value| value.get().into());
        match (key, self.wrapped) {
            (Some(key), true) => {
                self.key = Some(key);
                self.held.clear();
                self.state = State::After;
                Ok(bytes)
            }
            (Some(key), false) if end == b',' => {
                self.key = Some(key);
                self.hold(b",")?;
                self.state = State::Brace;
                Ok(bytes.get(1..).unwrap_or_default())
            }
            (None, true) => Err(self.structure("a key that is no JSON")),
            (Some(_) | None, false) => Ok(self.no_wrapper(bytes)),
        }
    }

    /// What is held is the beginning of a line.
    fn no_wrapper<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        (self.in_text, self.escaped, self.depth) = (false, false, 0);
        self.state = State::Lines;
        bytes
    }

    /// After the name of a first field that is not the wrapper's: an item has it, unless its value is an array that no item
    /// has. Then it is the wrapper, by a name that is not known.
    fn value<'a>(&mut self, bytes: &'a [u8], has_colon: bool) -> Result<&'a [u8], SplitFault> {
        let Some((byte, after)) = bytes.split_first() else { return Ok(bytes) };
        match (byte, has_colon) {
            (b':', false) => self.state = State::Value { has_colon: true },
            (b'[', true) if !ITEM_ARRAYS.contains(&self.name.as_str()) => {
                return Err(self.unknown(&self.name));
            }
            (byte, _) if byte.is_ascii_whitespace() => {}
            _ => {
                self.state = State::Lines;
                return Ok(bytes);
            }
        }
        self.hold(&[*byte])?;
        Ok(after)
    }

    fn inside<'a>(
        &mut self,
        bytes: &'a [u8],
        each: &mut impl FnMut(Place, &[u8]),
    ) -> Result<&'a [u8], SplitFault> {
        let Some(end) = self.item_end(bytes) else {
            self.hold(bytes)?;
            return Ok(&[]);
        };
        let (last, rest) = bytes.split_at(end);
        self.complete(last, each)?;
        let Some((byte, after)) = rest.split_first() else { return Ok(rest) };
        self.state = match byte {
            b',' => State::Before { may_end: false },
            b']' => State::After,
            _ => return Err(self.structure("a bracket that was never opened")),
        };
        Ok(after)
    }

    /// Where the item ends: at a comma or bracket that is not the item's own.
    fn item_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        loop {
            // Texts are most of what is sent, and little in them matters here.
            if self.in_text && !self.escaped {
                rest = rest.get(memchr2(b'"', b'\\', rest)?..)?;
            }
            let (byte, after) = rest.split_first()?;
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_text,
                b'"' => self.in_text = !self.in_text,
                _ if self.in_text => {}
                b'{' | b'[' => self.depth += 1,
                b',' | b'}' | b']' if self.depth == 0 => return Some(bytes.len() - rest.len()),
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            rest = after;
        }
    }

    fn line<'a>(
        &mut self,
        bytes: &'a [u8],
        each: &mut impl FnMut(Place, &[u8]),
    ) -> Result<&'a [u8], SplitFault> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.hold(bytes)?;
            return Ok(&[]);
        };
        let (last, rest) = bytes.split_at(end);
        self.complete(last, each)?;
        Ok(rest.get(1..).unwrap_or_default())
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<(), SplitFault> {
        if self.held.len() + bytes.len() > self.limits.item_bytes_max {
            return Err(SplitFault::ItemTooLarge { index: self.count, max: self.limits.item_bytes_max });
        }
        self.held.extend_from_slice(bytes);
        Ok(())
    }

    fn complete(&mut self, last: &[u8], each: &mut impl FnMut(Place, &[u8])) -> Result<(), SplitFault> {
        if self.held.is_empty() {
            return self.emit(last, each);
        }
        self.hold(last)?;
        let mut held = std::mem::take(&mut self.held);
        let emitted = self.emit(&held, each);
        held.clear();
        self.held = held;
        emitted
    }

    fn emit(&mut self, item: &[u8], each: &mut impl FnMut(Place, &[u8])) -> Result<(), SplitFault> {
        let (blank, _) = item.split_at(item.len() - item.trim_ascii_start().len());
        let place = self.begun.after(blank);
        let item = item.trim_ascii();
        // Blank lines between items are common; inside an array an item is never blank.
        if item.is_empty() {
            return Ok(());
        }
        if self.count >= self.limits.items_count_max {
            return Err(SplitFault::TooManyItems(self.limits.items_count_max));
        }
        if item.len() > self.limits.item_bytes_max {
            return Err(SplitFault::ItemTooLarge { index: self.count, max: self.limits.item_bytes_max });
        }
        self.count += 1;
        each(place, item);
        Ok(())
    }

    fn unknown(&self, name: &str) -> SplitFault {
        SplitFault::UnknownField { name: shown(name).to_owned(), wrapper: self.wrapper }
    }

    const fn structure(&self, what: &'static str) -> SplitFault {
        SplitFault::Structure { what, index: self.count }
    }
}

#[cfg(test)]
mod tests;
