//! JSON Schemas that payloads are checked with, so that neither a schema nor a payload can make the server hang: what a
//! schema costs is counted before it is compiled, patterns are matched in linear time, and nothing is ever fetched.
//!
//! | file | what it holds |
//! |---|---|
//! | `bounds` | what a schema costs, and what is refused because its cost has no bound |
//! | `compiled` | compiled schemas, as many as may be |

mod bounds;
mod compiled;
#[cfg(test)]
mod tests;

use jsonschema::error::ValidationError;
use jsonschema::paths::{Location, LocationSegment};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tidewheel_core::limits::{
    PAYLOAD_CHECKS_COUNT_MAX, PAYLOAD_FAULTS_COUNT_MAX, PAYLOAD_TOLD_CHECKS_COUNT_MAX,
    SCHEMA_PATTERN_BYTES_MAX,
};

use self::bounds::{Size, measure, values};
pub(crate) use self::compiled::CompiledSchemas;

/// How much of what is wrong is told, in characters: a schema may name much.
const DETAIL_CHARS_MAX: usize = 300;
/// What a pattern costs for each byte it reads. Linear in the text does not mean cheap.
const PATTERN_CHECKS_PER_BYTE: usize = 16;

/// What is wrong with a schema, or with a payload by its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// Where, step by step.
    pub(crate) path: Vec<String>,
    /// What.
    pub(crate) detail: String,
}

impl Flaw {
    fn of_all(detail: impl Into<String>) -> Self {
        Self { path: Vec::new(), detail: detail.into() }
    }

    fn of(error: &ValidationError<'_>) -> Self {
        // Never the value itself: a payload may hold secrets, and be large.
        let detail = error.masked().to_string().chars().take(DETAIL_CHARS_MAX).collect();
        Self { path: steps(error.instance_path()), detail }
    }
}

fn steps(location: &Location) -> Vec<String> {
    location.segments().map(|step: LocationSegment<'_>| step.to_string()).collect()
}

/// A schema that can be used.
#[derive(Debug)]
pub(crate) struct Schema {
    validator: Validator,
    size: Size,
}

impl Schema {
    /// Compiles a schema, unless it costs too much or reaches outside itself.
    pub(crate) fn compile(text: &str) -> Result<Self, Flaw> {
        let schema: Value = serde_json::from_str(text)
            .map_err(|fault| Flaw::of_all(format!("the schema cannot be read: {fault}")))?;
        let size = measure(&schema)?;
        let patterns = PatternOptions::regex()
            .size_limit(SCHEMA_PATTERN_BYTES_MAX)
            .dfa_size_limit(SCHEMA_PATTERN_BYTES_MAX);
        let options = jsonschema::options().offline().should_validate_formats(true);
        let validator = options.with_pattern_options(patterns).build(&schema);
        validator.map(|validator| Self { validator, size }).map_err(|error| Flaw::of_schema(&error))
    }

    /// What is wrong with a payload; nothing if it matches.
    pub(crate) fn check(&self, payload: &[u8]) -> Vec<Flaw> {
        let Ok(payload_value) = serde_json::from_slice::<Value>(payload) else {
            let detail = "it nests too deep, or holds a number too large, to be checked";
            return vec![Flaw::of_all(detail)];
        };
        let cost = self.cost(values(&payload_value), payload.len());
        if cost > PAYLOAD_CHECKS_COUNT_MAX {
            let detail = format!(
                "checking it would take {cost} steps, and {PAYLOAD_CHECKS_COUNT_MAX} may be taken: \
                 send less, or have the schema of the type made simpler"
            );
            return vec![Flaw::of_all(detail)];
        }
        if self.validator.is_valid(&payload_value) {
            return Vec::new();
        }
        if cost > PAYLOAD_TOLD_CHECKS_COUNT_MAX {
            return vec![Flaw::of_all("it does not match the schema, and is too large to say where")];
        }
        let errors = self.validator.iter_errors(&payload_value);
        errors.take(PAYLOAD_FAULTS_COUNT_MAX).map(|error| Flaw::of(&error)).collect()
    }

    fn cost(&self, values: usize, bytes: usize) -> usize {
        let by_patterns = bytes.saturating_mul(self.size.patterns).saturating_mul(PATTERN_CHECKS_PER_BYTE);
        values.saturating_mul(self.size.checks).saturating_add(by_patterns)
    }
}

impl Flaw {
    /// What the library has against a schema. Its own text may be shown.
    fn of_schema(error: &ValidationError<'_>) -> Self {
        let detail = error.to_string().chars().take(DETAIL_CHARS_MAX).collect();
        Self { path: steps(error.instance_path()), detail }
    }
}
