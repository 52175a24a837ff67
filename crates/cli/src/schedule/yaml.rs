//! YAML, within bounds: a file is small, flat, and cannot grow by aliases.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, UserMessageFormatter, alias_limits, budget, options, ser_options};

/// Levels of nesting; payloads are the deepest part of a file.
const DEPTH_MAX: usize = 128;
/// Scalars, lists and maps of the whole file, with what aliases repeat.
const NODES_COUNT_MAX: usize = 2_000_000;
/// Scalars, lists and maps that aliases repeat.
const REPEATED_COUNT_MAX: usize = 100_000;

/// YAML takes what begins with a star for an alias.
const STAR_HINT: &str = "a cron expression that begins with * needs quotes";

/// Reads one document. The error says where it goes wrong.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let options = options! {
        budget: budget! { max_depth: DEPTH_MAX, max_nodes: NODES_COUNT_MAX, max_events: 2 * NODES_COUNT_MAX, max_documents: 1 },
        alias_limits: alias_limits! { max_total_replayed_events: REPEATED_COUNT_MAX },
        // As YAML 1.2 has it: a label `no` is a text.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|fault| told(&fault))
}

/// A fault in words that do not take knowing how the file is read, and what to do about it.
fn told(fault: &Error) -> String {
    let line = fault.location().map(|at| format!(", on line {}", at.line())).unwrap_or_default();
    if let Error::AliasError { error, .. } = fault {
        return told(error);
    }
    if let Error::DuplicateMappingKey { key, .. } = fault {
        let key = key.as_ref().map_or_else(|| "a key".to_owned(), |key| format!("the key {key:?}"));
        return format!("{key} stands twice in one map{line}; keep one");
    }
    if let Error::MultipleDocuments { .. } | Error::Budget { breach: BudgetBreach::Documents { .. }, .. } =
        fault
    {
        return "the file has more than one YAML document; keep one".to_owned();
    }
    if let Error::Budget { breach: BudgetBreach::Depth { .. }, .. } = fault {
        return format!("the file nests deeper than {DEPTH_MAX} levels{line}; flatten it");
    }
    if let Error::Budget { .. } = fault {
        return format!("the file has too many values or aliases{line}; split it, or write fewer aliases");
    }
    if let Error::AliasReplayLimitExceeded { .. }
    | Error::AliasExpansionLimitExceeded { .. }
    | Error::AliasReplayStackDepthExceeded { .. }
    | Error::AliasReplayCounterOverflow { .. } = fault
    {
        return format!("aliases repeat too much of the file{line}; write fewer of them");
    }
    if let Error::RecursiveReferencesRequireWeakTypes { .. } = fault {
        return format!("an alias stands inside of what it repeats{line}; take it out");
    }
    if let Error::UnknownAnchor { .. } = fault {
        return format!("an alias names nothing in the file{line}; {STAR_HINT}");
    }
    let is_starred = ["alias", "anchor"].iter().any(|word| fault.to_string().contains(word));
    let said = fault.render_with_formatter(&UserMessageFormatter);
    if is_starred { format!("{said}; {STAR_HINT}") } else { said }
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
    fn faults_are_told_in_the_words_of_a_file() {
        for (text, wanted) in [
            ("a: 1\n---\nb: 2\n", "the file has more than one YAML document; keep one"),
            ("a:\n  b: 1\n  b: 2\n", "the key \"b\" stands twice in one map, on line 3; keep one"),
            ("a: *b\n", "an alias names nothing in the file"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.starts_with(wanted), "{text}: {fault}");
        }
        for text in [
            "a: &a [*a]".to_owned(),
            "[".repeat(100_000),
            format!("a: &a [x, x, x, x]\nb: [{}]\n", vec!["*a"; 50_000].join(", ")),
            "a: .nan".to_owned(),
        ] {
            let Err(fault) = read(&text) else { continue };
            for inside in ["breach", "Policy", "Options", "weak", "replay", "struct"] {
                assert!(!fault.contains(inside), "{fault}");
            }
        }
    }

    #[test]
    fn aliases_within_reason_are_fine() {
        let document = read("base: &r {base: 5s}\nlist: [{retry: *r}, {retry: *r}]\n").unwrap();
        assert_eq!(document["list"][1]["retry"]["base"], "5s");
    }
}
