//! The reference in `docs/api.md`, made from the OpenAPI document. `INSTA_UPDATE=always` writes it anew.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const DOCUMENT: &str = "crates/server/src/http/openapi/snapshots/tidewheel_server__http__openapi__tests__the_document_is_golden.snap";
/// What stands above it is written by hand.
const BEGINNING: &str =
    "<!-- Made from the OpenAPI document from here on; see crates/cli/tests/it/api_reference.rs. -->\n";
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_path_buf()
}

/// The golden document, which a test of the server holds to what is served.
fn document() -> Value {
    let snapshot = fs::read_to_string(root().join(DOCUMENT)).unwrap();
    serde_json::from_str(snapshot.splitn(3, "---\n").nth(2).unwrap()).unwrap()
}

fn name_of(reference: &Value) -> Option<&str> {
    reference["$ref"].as_str()?.rsplit('/').next()
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(path) => document.pointer(path.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

/// On one line, so that it can stand in a table.
fn told(value: &Value) -> String {
    value["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

/// What kind of value it is, with a link where it has a shape of its own.
fn kind(schema: &Value) -> String {
    if let Some(name) = name_of(schema) {
        return format!("[{name}](#{})", anchor(&heading(name)));
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().map(|value| format!("`{}`", value.as_str().unwrap_or("null"))).collect();
        return values.join(", ");
    }
    for several in ["anyOf", "oneOf"] {
        if let Some(kinds) = schema[several].as_array() {
            return kinds.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    let one = |name: &str| match name {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" => match schema["additionalProperties"].as_object() {
            Some(_) => format!("map to {}", kind(&schema["additionalProperties"])),
            None => "object".to_owned(),
        },
        name => name.to_owned(),
    };
    match &schema["type"] {
        Value::String(name) => one(name),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).map(one).collect::<Vec<_>>().join(" or ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "anything".to_owned(),
    }
}

/// Bounds and default of a value.
fn bounds(schema: &Value) -> String {
    let mut parts = Vec::new();
    let names = [
        ("minimum", "at least", ""),
        ("exclusiveMinimum", "more than", ""),
        ("maximum", "at most", ""),
        ("maxLength", "at most", " characters"),
        ("maxItems", "at most", " items"),
        ("default", "default", ""),
    ];
    for (key, before, after) in names {
        if !schema[key].is_null() {
            let value = schema[key].to_string();
            parts.push(format!("{before} `{}`{after}", value.trim_matches('"')));
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    format!("({})", parts.join(", "))
}

/// Of a shape; apart from those of the sections written by hand, some of which have its name.
fn heading(shape: &str) -> String {
    format!("{shape} (shape)")
}

/// As forges make it of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect()
}

fn body_of(content: &Value) -> String {
    let kinds = content.as_object().into_iter().flatten();
    let told: Vec<String> = kinds
        .map(|(media, body)| match media.as_str() {
            "application/json" | "application/problem+json" => kind(&body["schema"]),
            media => format!("`{media}`"),
        })
        .collect();
    told.join(" or ")
}

fn operation(page: &mut String, document: &Value, heading: &str, operation: &Value) {
    writeln!(page, "\n#### `{heading}`\n\n{}.", operation["summary"].as_str().unwrap()).unwrap();
    if let Some(description) = operation["description"].as_str() {
        writeln!(page, "{description}").unwrap();
    }
    let parameters: Vec<&Value> =
        operation["parameters"].as_array().into_iter().flatten().map(|p| resolved(document, p)).collect();
    if !parameters.is_empty() {
        page.push_str("\n| parameter | in | kind | |\n|---|---|---|---|\n");
        for parameter in parameters {
            let schema = &parameter["schema"];
            let (name, place) = (parameter["name"].as_str().unwrap(), parameter["in"].as_str().unwrap());
            let more = [told(parameter), bounds(schema)]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>();
            writeln!(page, "| `{name}` | {place} | {} | {} |", kind(schema), more.join(" ")).unwrap();
        }
    }
    if operation["requestBody"].is_object() {
        let body = &operation["requestBody"];
        let may = if body["required"] == true { "" } else { ", which may be left out" };
        writeln!(page, "\nBody: {}{may}.", body_of(&body["content"])).unwrap();
    }
    let mut problems = Vec::new();
    page.push_str("\n| answer | body | |\n|---|---|---|\n");
    for (status, response) in operation["responses"].as_object().unwrap() {
        if name_of(response).is_some() {
            problems.push(status.as_str());
            continue;
        }
        writeln!(page, "| {status} | {} | {} |", body_of(&response["content"]), told(response)).unwrap();
    }
    if !problems.is_empty() {
        writeln!(page, "| {} | [Problem](#problem-shape) | [errors.md](errors.md) |", problems.join(", "))
            .unwrap();
    }
}

fn shape(page: &mut String, name: &str, schema: &Value) {
    writeln!(page, "\n#### {}\n", heading(name)).unwrap();
    if !told(schema).is_empty() {
        writeln!(page, "{}\n", told(schema)).unwrap();
    }
    let Some(fields) = schema["properties"].as_object() else {
        let examples =
            schema["examples"].as_array().into_iter().flatten().map(|example| format!("`{example}`"));
        let examples: Vec<String> = examples.collect();
        let such =
            if examples.is_empty() { String::new() } else { format!(", such as {}", examples.join(", ")) };
        let more = bounds(schema);
        let more = if more.is_empty() { more } else { format!(" {more}") };
        writeln!(page, "{}{such}{more}", kind(schema)).unwrap();
        return;
    };
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    page.push_str("| field | kind | |\n|---|---|---|\n");
    for (field, value) in fields {
        let star = if required.contains(&field.as_str()) { "" } else { "?" };
        let more: Vec<String> =
            [told(value), bounds(value)].into_iter().filter(|part| !part.is_empty()).collect();
        writeln!(page, "| `{field}`{star} | {} | {} |", kind(value), more.join(" ")).unwrap();
    }
}

fn reference(document: &Value) -> String {
    let mut page = String::from(BEGINNING);
    page.push_str(
        "\n## Reference\n\nAll calls, then all shapes. A field with `?` may be left out or missing.\n",
    );
    for tag in document["tags"].as_array().unwrap() {
        let name = tag["name"].as_str().unwrap();
        writeln!(page, "\n### Calls: {name}\n\n{}", told(tag)).unwrap();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in METHODS {
                let found = &methods[method];
                if found["tags"][0] == name {
                    operation(&mut page, document, &format!("{} {path}", method.to_uppercase()), found);
                }
            }
        }
    }
    page.push_str("\n### Shapes\n");
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        shape(&mut page, name, schema);
    }
    page
}

#[test]
fn the_reference_is_that_of_the_document() {
    let path = root().join("docs/api.md");
    let page = fs::read_to_string(&path).unwrap();
    let (by_hand, made) = page.split_once(BEGINNING).expect("docs/api.md says where its reference begins");
    let wanted = reference(&document());
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, format!("{by_hand}{wanted}")).unwrap();
        return;
    }
    let is_current = format!("{BEGINNING}{made}") == wanted;
    assert!(is_current, "docs/api.md is not current: INSTA_UPDATE=always cargo test --test it api_reference");
}

#[test]
fn every_call_and_shape_is_in_it() {
    let document = document();
    let page = reference(&document);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let heading = format!("#### `{} {path}`\n", method.to_uppercase());
            assert_eq!(page.matches(&heading).count(), 1, "{heading}");
        }
    }
    // Each link leads to a heading.
    for link in page.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
        let found =
            page.lines().filter_map(|line| line.strip_prefix("#### ")).any(|heading| anchor(heading) == link);
        assert!(found, "#{link} leads nowhere");
    }
}
