//! YAML, within bounds: a file is small, flat, and cannot grow by aliases.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{alias_limits, budget, options, ser_options};

/// Levels of nesting; payloads are the deepest part of a file.
const DEPTH_MAX: usize = 128;
/// Scalars, lists and maps of the whole file, with what aliases repeat.
const NODES_COUNT_MAX: usize = 2_000_000;
/// Scalars, lists and maps that aliases repeat.
const REPEATED_COUNT_MAX: usize = 100_000;

/// Reads one document. The error says where it goes wrong.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let options = options! {
        budget: budget! { max_depth: DEPTH_MAX, max_nodes: NODES_COUNT_MAX, max_events: 2 * NODES_COUNT_MAX, max_documents: 1 },
        alias_limits: alias_limits! { max_total_replayed_events: REPEATED_COUNT_MAX },
        // As YAML 1.2 has it: a label `no` is a text.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|fault| {
        let fault = fault.to_string();
        let starred = ["alias", "anchor"].iter().any(|word| fault.contains(word));
        let hint = if starred { "; a cron expression that begins with * needs quotes" } else { "" };
        format!("{fault}{hint}")
    })
}

/// Writes a document that [`read`] reads as the same.
pub(super) fn write(document: &impl Serialize) -> Result<String, String> {
    let options = ser_options! { prefer_block_scalars: false, indent_step: 2 };
    serde_saphyr::to_string_with_options(document, options).map_err(|fault| fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_that_look_like_something_else_stay_texts() {
        let tricky = [
            "no",
            "yes",
            "on",
            "null",
            "~",
            "1",
            "1.0",
            "0x1f",
            "1e3",
            "",
            " ",
            "a: b",
            "- a",
            "# a",
            "*/5 * * * *",
            "@daily",
            "0 9 * * MON-FRI",
            "2026-12-01",
            "2026-12-01T09:00:00Z",
            "12:30",
            "line\nbreak\n",
            "tab\t",
            "\"",
            "'",
            "{a}",
            "[a]",
            "%",
            "!x",
            "&x",
            "é\u{1b}\u{7f}",
            ".inf",
            "TRUE",
            "=",
            "<<",
            "?",
            "| a",
            "> a",
            "trailing ",
            "0o17",
            "1_000",
            "a\r\nb",
            "\u{feff}x",
            "\u{2028}",
            "-",
            "---",
            "...",
        ];
        for text in tricky {
            let document = json!({"payload": {"text": text, text: [text]}});
            let yaml = write(&document).unwrap();
            assert_eq!(read(&yaml), Ok(document), "{yaml}");
        }
        let values = json!({"a": [], "b": {}, "c": [null, true, 1, -1.5, 18_446_744_073_709_551_615_u64, 1e300], "d": [[{"e": []}]]});
        assert_eq!(read(&write(&values).unwrap()), Ok(values));
    }

    #[test]
    fn what_looks_like_yaml_1_1_is_read_as_yaml_1_2() {
        let document =
            read("a: no\nb: 0 9 * * *\nc: 2026-12-01T09:00:00Z\nd: true\ne: 12:30\nf: 010\n").unwrap();
        assert_eq!(document["a"], "no");
        assert_eq!(document["b"], "0 9 * * *");
        assert_eq!(document["c"], "2026-12-01T09:00:00Z");
        assert_eq!(document["d"], true);
        assert_eq!(document["e"], "12:30");
    }

    #[test]
    fn bombs_are_refused() {
        let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..10 {
            let before = format!("*a{}", level - 1);
            laughs.push_str(&format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", ")));
        }
        assert!(read(&laughs).is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&format!("a: {}", "- ".repeat(10_000))).is_err());
        assert!(read("a: &a [*a]").is_err());
        assert!(read("a: 1\n---\nb: 2\n").is_err(), "one document");
        assert!(read("a: 1\na: 2\n").is_err(), "a key twice");
        assert!(read("cron_expr: */5 * * * *\n").unwrap_err().contains("needs quotes"));
    }

    #[test]
    fn aliases_within_reason_are_fine() {
        let document = read("base: &r {base: 5s}\nlist: [{retry: *r}, {retry: *r}]\n").unwrap();
        assert_eq!(document["list"][1]["retry"]["base"], "5s");
    }
}
