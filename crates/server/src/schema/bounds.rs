//! What a schema costs, counted before it is compiled. References are followed, so a schema costs what it would if it
//! were written out in full; each part of that is applied to a value of a payload at most once. What refers to itself
//! has no such size and is refused, as is what only the validation itself can unfold.

use serde_json::Value;
use tidewheel_core::limits::{SCHEMA_CHECKS_COUNT_MAX, SCHEMA_DEPTH_MAX, SCHEMA_PATTERNS_COUNT_MAX};

use super::Flaw;

/// The drafts a schema may name.
const DRAFTS: [&str; 3] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
];
/// Keywords that make one part of a schema stand for another than its place says.
const IDENTIFIERS: [&str; 4] = ["$id", "$anchor", "$dynamicAnchor", "$schema"];
/// Keywords whose cost depends on what other parts of the schema come to.
const UNBOUNDED: [&str; 5] =
    ["$dynamicRef", "$recursiveRef", "$recursiveAnchor", "unevaluatedItems", "unevaluatedProperties"];
/// Keywords that check nothing by themselves.
const SILENT: [&str; 13] = [
    "$defs",
    "definitions",
    "$id",
    "$schema",
    "$comment",
    "$anchor",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];

/// What a schema costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    /// Checks of one value, at most.
    pub(super) checks: usize,
    pub(super) patterns: usize,
}

/// The size of a schema, if it has one and it is not too large.
pub(super) fn measure(schema: &Value) -> Result<Size, Flaw> {
    let draft = schema.get("$schema").map(|draft| draft.as_str().unwrap_or_default());
    if draft.is_some_and(|draft| !DRAFTS.contains(&draft.trim_end_matches('#'))) {
        let detail = format!("`$schema` is none of {}", DRAFTS.join(", "));
        return Err(Flaw { path: vec!["$schema".to_owned()], detail });
    }
    let mut walk = Walk { root: schema, size: Size::default(), path: Vec::new(), open: Vec::new() };
    walk.names(schema)?;
    walk.schema(schema, 1)?;
    Ok(walk.size)
}

/// How many values there are in a value, itself included.
pub(super) fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

struct Walk<'a> {
    root: &'a Value,
    size: Size,
    path: Vec<String>,
    /// References being followed.
    open: Vec<&'a str>,
}

impl<'a> Walk<'a> {
    fn refuse(&self, detail: impl Into<String>) -> Flaw {
        Flaw { path: self.path.clone(), detail: detail.into() }
    }

    /// Runs `work` one step further down.
    fn at(&mut self, step: &str, work: impl FnOnce(&mut Self) -> Result<(), Flaw>) -> Result<(), Flaw> {
        self.path.push(step.to_owned());
        work(self)?;
        self.path.pop();
        Ok(())
    }

    /// Refuses names inside the schema, wherever they stand: they would change what references mean.
    fn names(&mut self, value: &'a Value) -> Result<(), Flaw> {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let is_inside = !self.path.is_empty();
                    if is_inside && field.is_string() && IDENTIFIERS.contains(&name.as_str()) {
                        return Err(self.refuse(format!("`{name}` is allowed at the top of a schema only")));
                    }
                    self.at(name, |walk| walk.names(field))?;
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.at(&index.to_string(), |walk| walk.names(item))?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value, depth: usize) -> Result<(), Flaw> {
        if depth > SCHEMA_DEPTH_MAX {
            return Err(self
                .refuse(format!("schemas nest deeper than {SCHEMA_DEPTH_MAX} levels, references followed")));
        }
        self.count(1)?;
        // What is neither an object nor a truth is refused when the schema is compiled.
        let Value::Object(keywords) = schema else { return Ok(()) };
        for (keyword, value) in keywords {
            self.at(keyword, |walk| walk.keyword(keyword, value, depth + 1))?;
        }
        Ok(())
    }

    fn keyword(&mut self, keyword: &str, value: &'a Value, depth: usize) -> Result<(), Flaw> {
        match (keyword, value) {
            (name, _) if UNBOUNDED.contains(&name) => {
                Err(self.refuse(format!("`{name}` cannot be used: what it costs has no bound")))
            }
            (name, _) if SILENT.contains(&name) => Ok(()),
            ("format", Value::String(format)) if format == "regex" => {
                Err(self.refuse("the format `regex` cannot be used: patterns in payloads are not compiled"))
            }
            ("$ref", Value::String(text)) => self.reference(text, depth),
            ("pattern", _) => self.count_patterns(1),
            ("patternProperties", Value::Object(schemas)) => {
                self.count_patterns(schemas.len())?;
                self.schemas_by_name(schemas, depth)
            }
            ("properties" | "dependentSchemas" | "dependencies", Value::Object(schemas)) => {
                self.schemas_by_name(schemas, depth)
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                for (index, schema) in schemas.iter().enumerate() {
                    self.at(&index.to_string(), |walk| walk.schema(schema, depth))?;
                }
                Ok(())
            }
            (
                "additionalProperties"
                | "propertyNames"
                | "items"
                | "additionalItems"
                | "contains"
                | "not"
                | "if"
                | "then"
                | "else",
                schema,
            ) => self.schema(schema, depth),
            (_, value) => self.count(values(value)),
        }
    }

    fn schemas_by_name(
        &mut self,
        schemas: &'a serde_json::Map<String, Value>,
        depth: usize,
    ) -> Result<(), Flaw> {
        for (name, schema) in schemas {
            self.at(name, |walk| match schema.as_array() {
                // The names a field depends on.
                Some(names) => walk.count(names.len()),
                None => walk.schema(schema, depth),
            })?;
        }
        Ok(())
    }

    fn reference(&mut self, text: &'a str, depth: usize) -> Result<(), Flaw> {
        let pointer = text.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = pointer.filter(|pointer| !pointer.contains('%')) else {
            return Err(self.refuse(
                "a reference is to a part of the same schema, such as `#/$defs/address`; nothing is fetched",
            ));
        };
        let Some(target) = self.root.pointer(pointer) else {
            return Err(self.refuse("there is nothing in the schema that the reference points to"));
        };
        if self.open.contains(&pointer) {
            return Err(self.refuse("the schema refers to itself, so what it costs has no bound"));
        }
        self.open.push(pointer);
        self.schema(target, depth)?;
        self.open.pop();
        Ok(())
    }

    fn count(&mut self, checks: usize) -> Result<(), Flaw> {
        self.size.checks += checks;
        if self.size.checks > SCHEMA_CHECKS_COUNT_MAX {
            let detail =
                format!("the schema has more than {SCHEMA_CHECKS_COUNT_MAX} checks, references followed");
            return Err(self.refuse(detail));
        }
        Ok(())
    }

    fn count_patterns(&mut self, patterns: usize) -> Result<(), Flaw> {
        self.size.patterns += patterns;
        if self.size.patterns > SCHEMA_PATTERNS_COUNT_MAX {
            let detail =
                format!("the schema has more than {SCHEMA_PATTERNS_COUNT_MAX} patterns, references followed");
            return Err(self.refuse(detail));
        }
        self.count(patterns)
    }
}
