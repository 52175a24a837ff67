//! A JSON object of the server's, kept in its order and to the byte. The command line shows what the server says,
//! also what a newer server says more, so it reads single fields instead of whole types.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON object.
#[derive(Debug, Default)]
pub(crate) struct Document(Vec<(String, Box<RawValue>)>);

impl Document {
    /// The fields, in the order sent.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), &**value))
    }

    /// A field's value.
    pub(crate) fn raw(&self, name: &str) -> Option<&RawValue> {
        self.fields().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// A field's value as text; nothing for an absent field and for null.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.raw(name).and_then(text_of)
    }

    /// The first of these fields that has a value.
    pub(crate) fn first_text(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.text(name))
    }

    /// A number that counts something.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.raw(name)?.get().parse().ok()
    }

    /// A field that is an object itself.
    pub(crate) fn inner(&self, name: &str) -> Option<Self> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }

    /// A field that is an array of objects.
    pub(crate) fn list(&self, name: &str) -> Option<Vec<Self>> {
        serde_json::from_str(self.raw(name)?.get()).ok()
    }
}

/// A value as people read it: strings without quotes, the rest as JSON; nothing for null.
pub(crate) fn text_of(value: &RawValue) -> Option<String> {
    match value.get() {
        "null" => None,
        json if json.starts_with('"') => serde_json::from_str(json).ok(),
        json => Some(crate::json::compact(json)),
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Document, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Document(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order_and_their_bytes() {
        let json = r#"{"z": 1.50, "a": "tab\t", "n": null, "o": {"url": "http://x"}, "l": [{"k": 7}]}"#;
        let document: Document = serde_json::from_str(json).unwrap();
        assert_eq!(document.fields().map(|(name, _)| name).collect::<Vec<_>>(), ["z", "a", "n", "o", "l"]);
        assert_eq!(document.text("z").as_deref(), Some("1.50"));
        assert_eq!(document.text("a").as_deref(), Some("tab\t"));
        assert_eq!(document.text("n"), None);
        assert_eq!(document.first_text(&["n", "none", "z"]).as_deref(), Some("1.50"));
        assert_eq!(document.inner("o").and_then(|o| o.text("url")).as_deref(), Some("http://x"));
        assert_eq!(document.list("l").map(|l| l.iter().filter_map(|d| d.count("k")).sum()), Some(7_u64));
        assert!(serde_json::from_str::<Document>("[1]").is_err());
    }
}
