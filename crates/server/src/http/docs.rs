//! The API's description for people: the OpenAPI document as one plain page. It is made when the server starts,
//! needs nothing from elsewhere and runs no script.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use serde_json::Value;
use tidewheel_api::wire::fault::Code;

use super::app::App;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b2733}\
h2{margin-top:2.5rem;border-bottom:1px solid #d4dde5}h3{margin-bottom:.2rem}code{background:#eef3f7;padding:.1em .3em;border-radius:3px}\
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #e6ecf1}\
.m{display:inline-block;min-width:4.5rem;font-weight:700;text-transform:uppercase;color:#0b6b8a}summary{cursor:pointer}";

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// `GET /openapi.json`
pub(super) async fn openapi(State(app): State<Arc<App>>) -> Response {
    fixed(app.openapi.clone(), "application/json")
}

/// `GET /docs`
pub(super) async fn page(State(app): State<Arc<App>>) -> Response {
    fixed(app.docs.clone(), "text/html; charset=utf-8")
}

/// `GET /docs/errors`
pub(super) async fn errors(State(app): State<Arc<App>>) -> Response {
    fixed(app.errors.clone(), "text/html; charset=utf-8")
}

fn fixed(body: Bytes, kind: &'static str) -> Response {
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// The page of all error codes.
pub(super) fn render_errors() -> String {
    let mut page = Page::begin("Tidewheel: errors");
    page.line(
        "<p><a href=\"/docs\">The API</a></p><table><tr><th>Code</th><th>Status</th><th>Meaning</th></tr>",
    );
    for code in Code::ALL {
        let (name, title) = (Escaped(code.as_str()), Escaped(code.title()));
        let meaning = Escaped(code.explanation().trim());
        page.line(&format!(
            "<tr id=\"{name}\"><td><code>{name}</code></td><td>{}</td><td>{title}.<br>{meaning}</td></tr>",
            code.status()
        ));
    }
    page.line("</table>");
    page.end()
}

/// The page of the whole document.
pub(super) fn render(document: &Value) -> String {
    let mut page = Page::begin("Tidewheel");
    page.paragraphs(text(&document["info"], "description"));
    page.line("<p><a href=\"/openapi.json\">The OpenAPI document</a> · <a href=\"/docs/errors\">All error codes</a></p>");
    for tag in items(&document["tags"]) {
        let name = text(tag, "name");
        page.line(&format!("<h2>{}</h2>", Escaped(name)));
        page.paragraphs(text(tag, "description"));
        for (path, methods) in fields(&document["paths"]) {
            for (method, operation) in fields(methods) {
                if items(&operation["tags"]).any(|tag| tag == name) {
                    page.operation(path, method, operation, document);
                }
            }
        }
    }
    page.line("<h2>Shapes</h2>");
    for (name, shape) in fields(at(document, "/components/schemas")) {
        page.shape(name, shape);
    }
    page.end()
}

struct Page(String);

impl Page {
    fn begin(title: &str) -> Self {
        let title = Escaped(title);
        Self(format!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
             <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>\n"
        ))
    }

    fn end(mut self) -> String {
        self.line("</body></html>");
        self.0
    }

    fn line(&mut self, html: &str) {
        self.0.push_str(html);
        self.0.push('\n');
    }

    fn paragraphs(&mut self, text: &str) {
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
            let html = marked(paragraph);
            self.line(&format!("<p>{html}</p>"));
        }
    }

    fn operation(&mut self, path: &str, method: &str, operation: &Value, document: &Value) {
        let (id, summary) = (Escaped(text(operation, "operationId")), Escaped(text(operation, "summary")));
        let (method, path) = (Escaped(method), Escaped(path));
        self.line(&format!(
            "<h3 id=\"{id}\"><span class=\"m\">{method}</span> <code>{path}</code></h3><p>{summary}.</p>"
        ));
        self.paragraphs(text(operation, "description"));
        self.line("<details><summary>Details</summary><table>");
        for parameter in items(&operation["parameters"]) {
            let parameter = resolve(document, parameter);
            let name = format!("{} ({})", text(parameter, "name"), text(parameter, "in"));
            self.row(&name, text(parameter, "description"));
        }
        for (kind, body) in fields(at(operation, "/requestBody/content")) {
            self.row("body", &format!("{} (`{kind}`)", shape_name(&body["schema"])));
        }
        for (status, response) in fields(&operation["responses"]) {
            let response = resolve(document, response);
            let shapes: Vec<_> =
                fields(&response["content"]).map(|(_, body)| shape_name(&body["schema"])).collect();
            self.row(status, &format!("{} {}", text(response, "description"), shapes.join(", ")));
        }
        self.line("</table></details>");
    }

    fn shape(&mut self, name: &str, shape: &Value) {
        let escaped = Escaped(name);
        self.line(&format!("<h3 id=\"shape-{escaped}\">{escaped}</h3>"));
        self.paragraphs(text(shape, "description"));
        self.line("<table>");
        if shape["properties"].is_null() {
            self.row(&shape_name(shape), "");
        }
        for (field, value) in fields(&shape["properties"]) {
            let required = items(&shape["required"]).any(|name| name == field);
            let mark = if required { "" } else { " (optional)" };
            self.row(
                &format!("{field}{mark}"),
                &format!("`{}` {}", shape_name(value), text(value, "description")),
            );
        }
        self.line("</table>");
    }

    fn row(&mut self, name: &str, html_text: &str) {
        let html = marked(html_text);
        self.line(&format!("<tr><td><code>{}</code></td><td>{html}</td></tr>", Escaped(name)));
    }
}

/// What a schema is, in a few words.
fn shape_name(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        return reference.rsplit('/').next().unwrap_or(reference).to_owned();
    }
    let all = |list: &Value| items(list).map(shape_name).collect::<Vec<_>>().join(" or ");
    match (&schema["anyOf"], &schema["enum"], &schema["type"]) {
        (any @ Value::Array(_), _, _) => all(any),
        (_, Value::Array(names), _) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" | "),
        (_, _, Value::String(kind)) if kind == "array" => {
            format!("array of {}", shape_name(&schema["items"]))
        }
        (_, _, Value::String(kind)) => kind.clone(),
        (_, _, Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
        }
        (_, _, Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => "any JSON".to_owned(),
    }
}

fn resolve<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let pointer = value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}

fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Text as HTML, with what stands between backticks as code.
fn marked(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for (index, part) in text.split('`').enumerate() {
        let part = Escaped(part);
        // Writing to a string cannot fail.
        if index % 2 == 1 {
            html.write_fmt(format_args!("<code>{part}</code>")).unwrap_or_default();
        } else {
            html.write_fmt(format_args!("{part}")).unwrap_or_default();
        }
    }
    html
}

/// Text that cannot leave its place in HTML.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi;

    #[test]
    fn nothing_in_a_document_becomes_markup() {
        let hostile = "<img src=x onerror=alert(1)>\"'&";
        let document = serde_json::json!({
            "info": {"description": hostile},
            "tags": [{"name": hostile, "description": format!("`{hostile}`")}],
            "paths": {hostile: {hostile: {"tags": [hostile], "operationId": hostile, "summary": hostile}}},
            "components": {"schemas": {hostile: {"properties": {hostile: {"type": hostile}}}}},
        });
        let page = render(&document);
        assert!(!page.contains("<img"), "{page}");
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;"));
    }

    #[test]
    fn every_operation_and_every_code_is_on_its_page_and_nothing_is_loaded_or_run() {
        let document = openapi::document();
        let (page, errors) = (render(&document), render_errors());
        for (_, methods) in fields(&document["paths"]) {
            for (_, operation) in fields(methods) {
                assert!(page.contains(&format!("id=\"{}\"", text(operation, "operationId"))));
            }
        }
        for code in Code::ALL {
            assert!(errors.contains(&format!("id=\"{}\"", code.as_str())));
        }
        for page in [page, errors] {
            assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("<link"));
        }
    }
}
