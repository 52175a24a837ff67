//! Schemas that are hostile, and schemas at their limits.

use serde_json::{Value, json};
use tidewheel_core::limits::{
    PAYLOAD_BYTES_MAX, SCHEMA_CHECKS_COUNT_MAX, SCHEMA_DEPTH_MAX, SCHEMA_PATTERNS_COUNT_MAX,
    SCHEMAS_COMPILED_COUNT_MAX,
};

use super::*;

fn compile(schema: &Value) -> Result<Schema, Flaw> {
    Schema::compile(&schema.to_string())
}

fn refusal(schema: &Value) -> String {
    compile(schema).expect_err("a schema that must be refused").detail
}

fn pointers(schema: &Value, payload: &Value) -> Vec<String> {
    let flaws = compile(schema).unwrap().check(payload.to_string().as_bytes());
    flaws.iter().map(|flaw| flaw.path.iter().map(|step| format!("/{step}")).collect()).collect()
}

#[test]
fn a_payload_is_told_where_it_does_not_match() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["to"],
        "properties": {
            "to": {"type": "string", "format": "email"},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        },
        "additionalProperties": false,
        "$defs": {"line": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}},
    });
    assert!(pointers(&schema, &json!({"to": "a@example.com", "lines": [{"count": 1}]})).is_empty());
    let told = pointers(&schema, &json!({"to": 5, "lines": [{"count": 1}, {"count": 0}, {"count": "x"}]}));
    assert_eq!(told.len(), 3, "{told:?}");
    for pointer in ["/to", "/lines/1/count", "/lines/2/count"] {
        assert!(told.contains(&pointer.to_owned()), "{told:?}");
    }
    assert_eq!(pointers(&schema, &json!({"to": "nobody"})), ["/to"]);
    assert_eq!(pointers(&schema, &json!({})), [""]);
    assert_eq!(pointers(&schema, &json!({"to": "a@example.com", "from": 1})), [""]);
}

#[test]
fn what_is_wrong_is_told_without_the_value() {
    let schema = compile(&json!({"properties": {"key": {"maxLength": 3}}})).unwrap();
    let flaws = schema.check(br#"{"key": "hush-hush"}"#);
    assert_eq!(flaws.len(), 1);
    assert!(!flaws[0].detail.contains("hush"), "{flaws:?}");
}

#[test]
fn nothing_is_fetched() {
    for reference in [
        "https://example.com/schema.json",
        "http://127.0.0.1/schema.json",
        "file:///etc/passwd",
        "other.json#/a",
        "#anchor",
        "#/%24defs/a",
    ] {
        let detail = refusal(&json!({"properties": {"a": {"$ref": reference}}}));
        assert!(detail.contains("nothing is fetched"), "{reference}: {detail}");
    }
    assert!(refusal(&json!({"$schema": "http://127.0.0.1/meta"})).contains("$schema"));
    assert!(refusal(&json!({"$ref": "#/$defs/none"})).contains("nothing in the schema"));
    assert!(
        compile(&json!({"$id": "https://example.com/a", "$ref": "#/$defs/a", "$defs": {"a": {}}})).is_ok()
    );
    let inside = json!({"$defs": {"a": {"$id": "https://example.com/b"}}});
    assert!(refusal(&inside).contains("at the top"));
}

#[test]
fn patterns_take_linear_time_and_little_room() {
    // Either would keep a backtracking engine busy for ever on such a text.
    for pattern in ["^(a+)+$", "^(a|aa)+$", "^([a-zA-Z]+)*$"] {
        let schema = compile(&json!({"pattern": pattern})).unwrap();
        let text = json!(format!("{}!", "a".repeat(10_000))).to_string();
        assert_eq!(schema.check(text.as_bytes()).len(), 1, "{pattern}");
    }
    for pattern in ["^(?=a)b$", r"^(a)\1$", "((a{100}){100}){100}", "("] {
        assert!(compile(&json!({"pattern": pattern})).is_err(), "{pattern}");
        assert!(compile(&json!({"patternProperties": {pattern: true}})).is_err(), "{pattern}");
    }
    for pattern in [
        "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
        r"^\d{4}-\d{2}-\d{2}$",
        "^[A-Za-z0-9_.-]{1,128}$",
        r"^\w{1,64}$",
        r"^[^@\s]+@[^@\s]+\.[a-z]{2,}$",
    ] {
        assert!(compile(&json!({"pattern": pattern})).is_ok(), "{pattern}");
    }
    assert!(refusal(&json!({"format": "regex"})).contains("format"));
}

#[test]
fn a_schema_that_unfolds_without_end_is_refused() {
    assert!(refusal(&json!({"properties": {"child": {"$ref": "#"}}})).contains("itself"));
    let mutual = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}});
    assert!(refusal(&mutual).contains("itself"));
    for keyword in ["$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems"] {
        assert!(refusal(&json!({keyword: "#"})).contains("no bound"), "{keyword}");
    }
}

#[test]
fn a_small_schema_that_doubles_at_each_step_is_refused() {
    let mut defs = json!({"d10": {"type": "string"}});
    for step in 0..10 {
        let next = json!({"$ref": format!("#/$defs/d{}", step + 1)});
        defs[format!("d{step}")] = json!({"anyOf": [next, next]});
    }
    assert!(refusal(&json!({"$ref": "#/$defs/d0", "$defs": defs})).contains("checks"));
}

#[test]
fn each_limit_of_a_schema_holds_to_the_one() {
    // The schema itself is one check, its `enum` the list and what is in it.
    let checks = |count: usize| json!({"enum": (0..count - 2).collect::<Vec<_>>()});
    assert!(compile(&checks(SCHEMA_CHECKS_COUNT_MAX)).is_ok());
    assert!(refusal(&checks(SCHEMA_CHECKS_COUNT_MAX + 1)).contains("checks"));

    let nested = |levels: usize| (1..levels).fold(json!({}), |inner, _| json!({"not": inner}));
    assert!(compile(&nested(SCHEMA_DEPTH_MAX)).is_ok());
    assert!(refusal(&nested(SCHEMA_DEPTH_MAX + 1)).contains("deeper"));

    let patterns = |count: usize| json!({"allOf": vec![json!({"pattern": "a"}); count]});
    assert!(compile(&patterns(SCHEMA_PATTERNS_COUNT_MAX)).is_ok());
    assert!(refusal(&patterns(SCHEMA_PATTERNS_COUNT_MAX + 1)).contains("patterns"));

    let too_deep = "[".repeat(500) + &"]".repeat(500);
    assert!(Schema::compile(&format!("{{\"const\": {too_deep}}}")).is_err());
}

#[test]
fn what_a_payload_may_cost_is_bounded_and_so_is_what_is_told() {
    let of_items = |checks: usize| json!({"items": {"enum": (0..checks).collect::<Vec<_>>()}});
    let items = |count: usize| json!(vec![-1; count]);
    let flaws =
        |schema: &Value, payload: &Value| compile(schema).unwrap().check(payload.to_string().as_bytes());
    // Three checks beside those of the list: the schema, the one of the items, the list itself.
    let at = PAYLOAD_CHECKS_COUNT_MAX / 1_003 - 1;
    assert!(flaws(&of_items(1_000), &items(at))[0].detail.contains("too large to say where"));
    assert!(flaws(&of_items(1_000), &items(at + 1))[0].detail.contains("steps"));
    let told = flaws(&of_items(10), &items(100));
    assert_eq!(told.len(), PAYLOAD_FAULTS_COUNT_MAX);
    assert_eq!(told[7].path, ["7"]);

    let patterned = json!({"pattern": "^x*$"});
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    assert!(flaws(&patterned, &text(PAYLOAD_BYTES_MAX)).is_empty(), "one pattern reads the largest payload");
    assert_eq!(flaws(&json!({"not": {"allOf": vec![patterned; 30]}}), &text(PAYLOAD_BYTES_MAX)).len(), 1);
}

#[test]
fn compiled_schemas_are_kept_and_no_more_than_may_be() {
    let compiled = CompiledSchemas::default();
    let first = compiled.get(1, r#"{"type": "string"}"#).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &compiled.get(1, "never read").unwrap()));
    assert!(compiled.get(2, r#"{"type": 5}"#).is_err());
    for version in 10..10 + 3 * u64::try_from(SCHEMAS_COMPILED_COUNT_MAX).unwrap() {
        compiled.get(version, "{}").unwrap();
        assert!(compiled.count() <= SCHEMAS_COMPILED_COUNT_MAX);
    }
}
