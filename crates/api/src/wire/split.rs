//! A long body, item by item, as it arrives: a JSON array, an object whose only field (`jobs`, say) is an array, or one
//! item per line. Never holds more than one item, so memory does not grow with the body.
//!
//! The splitter finds where items end and leaves judging them to their reader: what is not valid JSON is either
//! refused here or inside an item.

use memchr::memchr2;

/// The field that may wrap the array, unless another is named.
const WRAPPER_DEFAULT: &str = "\"jobs\"";

/// How much is taken.
#[derive(Debug, Clone, Copy)]
pub struct SplitLimits {
    /// Items in one body.
    pub items_count_max: usize,
    /// Bytes of one item.
    pub item_bytes_max: usize,
}

/// Why a body cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SplitFault {
    /// More items than are taken.
    #[error("there are more than {0} items; send them in parts")]
    TooManyItems(usize),
    /// An item longer than any can be.
    #[error("item {index} has more than {max} bytes")]
    ItemTooLarge {
        /// Which, from 0.
        index: usize,
        /// What it may have.
        max: usize,
    },
    /// Not the structure it must have.
    #[error("{what} after item {index} (counted from 0)")]
    Structure {
        /// What was found.
        what: &'static str,
        /// Items before it.
        index: usize,
    },
    /// Over before its end.
    #[error("the body ends in the middle of the array")]
    Unfinished,
    /// Nothing but white space.
    #[error("the body is empty; a JSON array or one item per line is expected")]
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space so far.
    Start,
    /// After `{`: matching the wrapper's name, this much of it found.
    Wrapper(usize),
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
    state: State,
    wrapped: bool,
    /// The beginning of an item whose end has not arrived, or of what may turn out to be a line.
    held: Vec<u8>,
    depth: usize,
    in_text: bool,
    escaped: bool,
    count: usize,
}

impl Splitter {
    /// A splitter that finds out by itself how the body is made.
    #[must_use]
    pub const fn new(limits: SplitLimits) -> Self {
        Self::starting(limits, State::Start)
    }

    /// A splitter of a body that is known to have one item per line.
    #[must_use]
    pub const fn lines(limits: SplitLimits) -> Self {
        Self::starting(limits, State::Lines)
    }

    const fn starting(limits: SplitLimits, state: State) -> Self {
        let held = Vec::new();
        let wrapper = WRAPPER_DEFAULT;
        Self {
            limits,
            wrapper,
            state,
            wrapped: false,
            held,
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

    /// Takes the next bytes and hands every item they complete to `each`.
    ///
    /// # Errors
    /// When the body cannot be split; nothing more can be pushed then.
    pub fn push(&mut self, bytes: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), SplitFault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = match self.state {
                State::Lines => self.line(rest, each)?,
                State::Inside => self.inside(rest, each)?,
                State::Start
                | State::Wrapper(_)
                | State::Colon
                | State::Open
                | State::Before { .. }
                | State::After
                | State::End => self.between(rest)?,
            };
        }
        Ok(())
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// When something is missing.
    pub fn finish(&mut self, each: &mut impl FnMut(&[u8])) -> Result<(), SplitFault> {
        match self.state {
            State::End => Ok(()),
            State::After if !self.wrapped => Ok(()),
            State::Start => Err(SplitFault::Empty),
            // An object that broke off before it said what it is; its reader will say what is wrong with it.
            State::Lines | State::Wrapper(_) => {
                let held = std::mem::take(&mut self.held);
                self.emit(&held, each)
            }
            State::Colon | State::Open | State::Before { .. } | State::Inside | State::After => {
                Err(SplitFault::Unfinished)
            }
        }
    }

    /// Everything outside of items: looks at the first byte that is not white space.
    fn between<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], SplitFault> {
        // What may still turn out to be a line is kept, white space and all.
        if let State::Wrapper(found) = self.state {
            return self.wrapper(bytes, found);
        }
        let rest = bytes.trim_ascii_start();
        let Some((byte, after)) = rest.split_first() else { return Ok(rest) };
        let (state, rest) = match (self.state, *byte) {
            (State::Start, b'[') | (State::Open, b'[') => (State::Before { may_end: true }, after),
            (State::Start, b'{') => {
                self.held.push(b'{');
                (State::Wrapper(0), after)
            }
            (State::Start, _) => (State::Lines, rest),
            (State::Colon, b':') => (State::Open, after),
            (State::Before { may_end: true }, b']') => (State::After, after),
            (State::Before { .. }, b',' | b']') => return Err(self.structure("an item is missing")),
            (State::Before { .. }, _) => (State::Inside, rest),
            (State::After, b'}') if self.wrapped => (State::End, after),
            (State::After, b',') if self.wrapped => return Err(self.structure("a field beside the array")),
            (State::Colon | State::Open, _) => return Err(self.structure("a field without an array")),
            (State::After | State::End | State::Wrapper(_) | State::Lines | State::Inside, _) => {
                return Err(self.structure("something that does not belong there"));
            }
        };
        self.state = state;
        Ok(rest)
    }

    /// After `{`: either the wrapper's name follows, or this is the first of many lines.
    fn wrapper<'a>(&mut self, bytes: &'a [u8], found: usize) -> Result<&'a [u8], SplitFault> {
        let Some((byte, after)) = bytes.split_first() else { return Ok(bytes) };
        if found == 0 && byte.is_ascii_whitespace() && self.held.len() < self.limits.item_bytes_max {
            self.held.push(*byte);
            return Ok(after);
        }
        if self.wrapper.as_bytes().get(found) != Some(byte) {
            self.state = State::Lines;
            // A line break before the first field: one object over several lines.
            return Ok(bytes);
        }
        self.held.push(*byte);
        if found + 1 == self.wrapper.len() {
            self.held.clear();
            self.wrapped = true;
            self.state = State::Colon;
        } else {
            self.state = State::Wrapper(found + 1);
        }
        Ok(after)
    }

    fn inside<'a>(&mut self, bytes: &'a [u8], each: &mut impl FnMut(&[u8])) -> Result<&'a [u8], SplitFault> {
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

    fn line<'a>(&mut self, bytes: &'a [u8], each: &mut impl FnMut(&[u8])) -> Result<&'a [u8], SplitFault> {
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

    fn complete(&mut self, last: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), SplitFault> {
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

    fn emit(&mut self, item: &[u8], each: &mut impl FnMut(&[u8])) -> Result<(), SplitFault> {
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
        each(item);
        Ok(())
    }

    const fn structure(&self, what: &'static str) -> SplitFault {
        SplitFault::Structure { what, index: self.count }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const LIMITS: SplitLimits = SplitLimits { items_count_max: 100, item_bytes_max: 1_000 };

    fn split_with(mut splitter: Splitter, text: &[u8], cut: usize) -> Result<Vec<String>, SplitFault> {
        let mut items = Vec::new();
        let mut each = |item: &[u8]| items.push(String::from_utf8_lossy(item).into_owned());
        for chunk in text.chunks(cut.max(1)) {
            splitter.push(chunk, &mut each)?;
        }
        splitter.finish(&mut each)?;
        Ok(items)
    }

    fn split(text: &str) -> Result<Vec<String>, SplitFault> {
        let whole = split_with(Splitter::new(LIMITS), text.as_bytes(), usize::MAX);
        for cut in 1..8 {
            assert_eq!(split_with(Splitter::new(LIMITS), text.as_bytes(), cut), whole, "{text} cut at {cut}");
        }
        whole
    }

    #[test]
    fn all_three_forms() {
        let two = ["{\"a\":1}".to_owned(), "{\"a\":[\"],}\\\"\"]}".to_owned()];
        let joined = two.join(" , ");
        assert_eq!(split(&format!("[{joined}]")), Ok(two.to_vec()));
        assert_eq!(split(&format!(" {{ \"jobs\" : [{joined}]}} ")), Ok(two.to_vec()));
        assert_eq!(split(&format!("{}\n\r\n{}\r\n", two[0], two[1])), Ok(two.to_vec()));
        assert_eq!(split(&format!("\n{}", two[0])), Ok(two[..1].to_vec()));
        assert_eq!(split("[]"), Ok(vec![]));
        assert_eq!(split("{\"jobs\":[ ]}"), Ok(vec![]));
        assert_eq!(split("{\"jobsX\":[]}"), Ok(vec!["{\"jobsX\":[]}".to_owned()]));
        assert_eq!(split("{}"), Ok(vec!["{}".to_owned()]));
        assert_eq!(
            split("[1, \"x\", null]"),
            Ok(vec!["1".to_owned(), "\"x\"".to_owned(), "null".to_owned()])
        );
        assert_eq!(split_with(Splitter::lines(LIMITS), b"", 1), Ok(vec![]));
        assert_eq!(split_with(Splitter::lines(LIMITS), b"[1]\n{\"jobs\":[]}", 3).unwrap().len(), 2);
    }

    #[test]
    fn broken_bodies_are_refused() {
        for text in [
            "",
            "  ",
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1}",
            "[1]]",
            "[1] 2",
            "{\"jobs\"",
            "{\"jobs\":",
            "{\"jobs\":5}",
            "{\"jobs\":[1]",
            "{\"jobs\":[1],\"x\":2}",
            "{\"jobs\":[1]}}",
            "{\"jobs\":{}}",
        ] {
            assert!(split(text).is_err(), "{text}: {:?}", split(text));
        }
    }

    #[test]
    fn limits_hold_at_their_edge() {
        let limits = SplitLimits { items_count_max: 3, item_bytes_max: 5 };
        for cut in 1..20 {
            let run = |text: &str| split_with(Splitter::new(limits), text.as_bytes(), cut);
            assert_eq!(run("[1,2,3]").unwrap().len(), 3);
            assert_eq!(run("[1,2,3,4]"), Err(SplitFault::TooManyItems(3)));
            assert_eq!(run("1\n2\n3\n4"), Err(SplitFault::TooManyItems(3)));
            assert_eq!(run("[12345,1]").unwrap().len(), 2);
            assert_eq!(run("[1,123456]"), Err(SplitFault::ItemTooLarge { index: 1, max: 5 }));
            assert_eq!(run("1\n123456"), Err(SplitFault::ItemTooLarge { index: 1, max: 5 }));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<i32>().prop_map(|n| json!(n)),
            ".{0,8}".prop_map(|s| json!(s))
        ];
        leaf.prop_recursive(3, 12, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
                prop::collection::vec((".{0,4}", inner), 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_array_comes_apart_into_its_items(
            items in prop::collection::vec(value(), 0..6), cut in 1_usize..40, wrapped in any::<bool>(), pretty in any::<bool>(),
        ) {
            let body = if wrapped { json!({ "jobs": items }) } else { json!(items) };
            let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
            let found = split_with(Splitter::new(LIMITS), text.as_bytes(), cut).unwrap();
            let found: Vec<Value> = found.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
            prop_assert_eq!(found, items);
        }

        #[test]
        fn lines_come_apart_into_their_items(items in prop::collection::vec(value(), 1..6), cut in 1_usize..40) {
            let text = items.iter().map(|item| item.to_string() + "\n").collect::<String>();
            let found = split_with(Splitter::lines(LIMITS), text.as_bytes(), cut).unwrap();
            let found: Vec<Value> = found.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
            prop_assert_eq!(found, items);
        }

        #[test]
        fn what_is_not_json_is_refused_or_leaves_an_item_that_is_not(text in "[\\[\\]{},:\"\\\\ a1]{0,12}", cut in 1_usize..6) {
            let whole = format!("[{text}");
            if serde_json::from_str::<Value>(&whole).is_err()
                && let Ok(items) = split_with(Splitter::new(LIMITS), whole.as_bytes(), cut)
            {
                prop_assert!(items.iter().any(|item| serde_json::from_str::<Value>(item).is_err()), "{} {:?}", whole, items);
            }
        }
    }
}
