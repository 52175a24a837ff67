//! Holds the document to the routes and to itself.

use std::collections::BTreeSet;

use super::*;
use crate::http::routes;

fn operations(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        item.as_object()
            .unwrap()
            .iter()
            .map(move |(method, operation)| (method.clone(), path.clone(), operation))
    });
    each.collect()
}

#[test]
fn every_route_is_in_the_document_and_nothing_else() {
    let document = document();
    let described: BTreeSet<_> =
        operations(&document).into_iter().map(|(method, path, _)| (method, path)).collect();
    let served: BTreeSet<_> =
        routes::all().into_iter().map(|(method, path)| (method.to_owned(), path)).collect();
    assert_eq!(described, served);
    assert_eq!(routes::all().len(), served.len(), "a route is there twice");
}

#[test]
fn every_reference_leads_somewhere_and_every_part_is_used() {
    let document = document();
    let mut used = BTreeSet::new();
    collect_references(&document, &mut used);
    for reference in &used {
        let pointer = reference.strip_prefix('#').expect("references stay in the document");
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    for kind in ["schemas", "parameters"] {
        for name in document["components"][kind].as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            assert!(used.contains(&reference), "{reference} is not used");
        }
    }
}

fn collect_references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("$ref", Value::String(reference)) => {
                        into.insert(reference.clone());
                    }
                    (_, value) => collect_references(value, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn operations_are_whole() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let name = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{name}: id used twice");
        assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{name}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let in_path: BTreeSet<_> = parameters
            .iter()
            .map(|parameter| document.pointer(&parameter["$ref"].as_str().unwrap()[1..]).unwrap())
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
            .collect();
        let named = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        assert_eq!(in_path, named.map(str::to_owned).collect(), "{name}");
    }
}

#[test]
fn the_document_is_golden() {
    insta::assert_json_snapshot!(document());
}
