//! Bodies come apart the same way however they are cut, and what is wrong with them is told the same way.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const LIMITS: SplitLimits = SplitLimits { items_count_max: 100, item_bytes_max: 1_000 };

fn split_with(mut splitter: Splitter, text: &[u8], cut: usize) -> Result<Vec<String>, SplitFault> {
    let mut items = Vec::new();
    let mut each = |_: Place, item: &[u8]| items.push(String::from_utf8_lossy(item).into_owned());
    for chunk in text.chunks(cut.max(1)) {
        splitter.push(chunk, &mut each)?;
    }
    splitter.finish(&mut each)?;
    Ok(items)
}

fn split(text: &str) -> Result<Vec<String>, SplitFault> {
    let whole = split_with(Splitter::new(LIMITS), text.as_bytes(), usize::MAX);
    for cut in 1..=text.len() {
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
    assert_eq!(split("{\"jo\\u0062s\" : [1]}"), Ok(vec!["1".to_owned()]));
    assert_eq!(split("[1, \"x\", null]"), Ok(vec!["1".to_owned(), "\"x\"".to_owned(), "null".to_owned()]));
    assert_eq!(split_with(Splitter::lines(LIMITS), b"", 1), Ok(vec![]));
    assert_eq!(split_with(Splitter::lines(LIMITS), b"[1]\n{\"jobs\":[]}", 3).unwrap().len(), 2);
}

#[test]
fn every_item_comes_with_its_place_however_the_body_is_cut() {
    for text in [
        "[{\"a\":1},\n  {\"a\":[2,\n3]} , 4]",
        " \n{ \"jobs\" :\n [ 1,\n\n {\"a\":2}]}",
        "{\"a\":1}\n\n  {\"a\":2}\r\n \t\n{\"a\":3}",
        "\n\n  {\"a\" : 1}\n{\"b\":2}\n",
    ] {
        for cut in 1..=text.len() {
            let mut splitter = Splitter::new(LIMITS);
            let mut items = Vec::new();
            let mut each =
                |place: Place, item: &[u8]| items.push((place, String::from_utf8_lossy(item).into_owned()));
            for chunk in text.as_bytes().chunks(cut) {
                splitter.push(chunk, &mut each).unwrap();
            }
            splitter.finish(&mut each).unwrap();
            assert!(items.len() >= 2, "{text}");
            let mut from = 0;
            for (place, item) in items {
                let start = from + text[from..].find(&item).unwrap();
                assert_eq!(place, Place::default().after(&text.as_bytes()[..start]), "{item} in {text:?}");
                from = start + item.len();
            }
        }
    }
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
        "{\"jobs\":[1],\"x",
        "{\"jobs\":[1],",
        "{\"jobs\":[1],}",
        "{\"jobs\":[1],\"jobs\":[2]}",
        "{\"jobs\":}",
        "{\"jobs\":x}",
        "{\"jobs\":[1]}}",
        "{\"jobs\":{}}",
    ] {
        assert!(split(text).is_err(), "{text}: {:?}", split(text));
    }
}

#[test]
fn what_is_wrong_with_the_wrapper_is_told_by_name() {
    let wrapper = "\"jobs\"";
    let unknown = |name: &str| Err(SplitFault::UnknownField { name: name.to_owned(), wrapper });
    for (text, name) in [
        ("{\"jobz\": []}", "jobz"),
        ("{\"jobsX\":[{\"type\":\"t\"}]}", "jobsX"),
        ("{ \"job\" : [1], \"jobs\": []}", "job"),
        ("{\n  \"items\": [\n    1\n  ]\n}\n", "items"),
        ("{\"a\\\"b\\u0063\":[", "a\"bc"),
        ("{\"jobs\":[1],\"x\":2}", "x"),
        ("{\"jobs\":[] , \"note\"", "note"),
        ("{\"jobs\":[{\"a\":1}],\n\"no\\nte\":[]}", "no\nte"),
    ] {
        assert_eq!(split(text), unknown(name), "{text}");
    }
    assert_eq!(split(&format!("{{\"{}\":[", "n".repeat(500))), unknown(&"n".repeat(64)), "not all of it");
    for value in ["{}", "{\"a\":[]}", "5", "-1", "\"x\"", "null", "true", "false"] {
        let text = format!("{{\"jobs\": {value}}}");
        assert_eq!(split(&text), Err(SplitFault::NoArray { wrapper }), "{text}");
    }
    for text in ["{}", " {\n} ", "{}\n{\"type\":\"t\"}"] {
        assert_eq!(split(text), Err(SplitFault::NoField { wrapper }), "{text}");
    }
    let schedules = || Splitter::new(LIMITS).wrapped_in("\"schedules\"");
    let wrapper = "\"schedules\"";
    for cut in 1..20 {
        let run = |text: &str| split_with(schedules(), text.as_bytes(), cut);
        assert_eq!(run("{\"schedules\":[1]}"), Ok(vec!["1".to_owned()]));
        assert_eq!(run("{\"schedules\":{}}"), Err(SplitFault::NoArray { wrapper }));
        assert_eq!(run("{\"jobs\":[1]}"), Err(SplitFault::UnknownField { name: "jobs".to_owned(), wrapper }));
    }
}

#[test]
fn an_object_that_may_be_an_item_is_one() {
    for text in [
        "{\"jobz\": {}}",
        "{\"jobz\": 5}",
        "{\"payload\": [1], \"type\": \"t\"}",
        "{\"exclude\":[\"2026-12-24\"]}",
        "{ \"type\" : \"t\" }",
        "{\"ty\\u0070e\":\"t\"}",
        "{5}",
        "{\"a\"",
        "{\"a",
        "{",
    ] {
        assert_eq!(split(text), Ok(vec![text.to_owned()]), "{text}");
        let lines = format!("{text}\n{{\"type\":\"u\"}}\n");
        assert_eq!(split_with(Splitter::lines(LIMITS), lines.as_bytes(), 3).unwrap().len(), 2, "{text}");
    }
    assert_eq!(
        split("{\"typ\n{\"type\":\"t\"}\n").unwrap(),
        ["{\"typ", "{\"type\":\"t\"}"],
        "a line broke off"
    );
}

/// The items, and the key beside them.
fn split_keyed(text: &str) -> Result<(Vec<String>, Option<String>), SplitFault> {
    let run = |cut: usize| -> Result<(Vec<String>, Option<String>), SplitFault> {
        let mut splitter = Splitter::new(LIMITS).with_key();
        let mut items = Vec::new();
        let mut each = |_: Place, item: &[u8]| items.push(String::from_utf8_lossy(item).into_owned());
        for chunk in text.as_bytes().chunks(cut) {
            splitter.push(chunk, &mut each)?;
        }
        splitter.finish(&mut each)?;
        Ok((items, splitter.key().map(str::to_owned)))
    };
    let whole = run(text.len());
    for cut in 1..text.len() {
        assert_eq!(run(cut), whole, "{text} cut at {cut}");
    }
    whole
}

#[test]
fn a_key_beside_the_array_is_found_wherever_it_stands() {
    for (text, key) in [
        ("{\"idempotency_key\":\"k\",\"jobs\":[1,2]}", "\"k\""),
        ("{\"jobs\":[1,2],\"idempotency_key\":\"k\"}", "\"k\""),
        (" {\n \"idempotency_key\" : \"a,]}\\\"b\" ,\n \"jobs\" : [ 1 , 2 ]\n}\n", "\"a,]}\\\"b\""),
        ("{\"jobs\":[1,2] , \"idempotency_ke\\u0079\" : null\n}", "null"),
        ("{\"idempotency_key\":5,\"jobs\":[1,2]}", "5"),
        ("{\"jobs\":[1,2],\"idempotency_key\":{\"a\":[1,{}]}}", "{\"a\":[1,{}]}"),
    ] {
        let items = vec!["1".to_owned(), "2".to_owned()];
        assert_eq!(split_keyed(text), Ok((items, Some(key.to_owned()))), "{text}");
    }
    // That of an item is the item's.
    for text in [
        "{\"idempotency_key\":\"k\",\"type\":\"t\"}\n{\"idempotency_key\":\"l\",\"type\":\"u\"}\n",
        "{\"idempotency_key\":\"k\",\"payload\":[1]}\n{\"type\":\"u\"}",
        "{\"idempotency_key\":\"k\"}\n{\"type\":\"u\"}",
        "{\"idempotency_key\":\"k\n{\"type\":\"u\"}",
        "{\"idempotency_key\":\"k\\\n{\"type\":\"u\"}",
        "[{\"idempotency_key\":\"k\"},{\"jobs\":[]}]",
    ] {
        let (items, key) = split_keyed(text).unwrap();
        assert_eq!((items.len(), key), (2, None), "{text}");
    }
    for text in [
        "{\"jobs\":[1],\"idempotency_key\":\"k\",\"idempotency_key\":\"k\"}",
        "{\"idempotency_key\":\"k\",\"jobs\":[1],\"idempotency_key\":\"k\"}",
        "{\"idempotency_key\":\"k\",\"jobs\":[1],\"jobs\":[2]}",
        "{\"idempotency_key\":\"k\",\"jobz\":[1]}",
        "{\"jobs\":[1],\"idempotency_key\":}",
        "{\"jobs\":[1],\"idempotency_key\" \"k\"}",
        "{\"jobs\":[1],\"idempotency_key\":\"k\" x}",
        "{\"jobs\":[1],\"idempotency_key\":\"k\"]",
        "{\"jobs\":[1],\"idempotency_key\":\"k\"",
        "{\"jobs\":[1],\"idempotency_key\":\"k\",}",
    ] {
        assert!(split_keyed(text).is_err(), "{text}");
    }
    let unknown = SplitFault::UnknownField { name: "idempotency_key".to_owned(), wrapper: "\"jobs\"" };
    assert_eq!(split("{\"jobs\":[1],\"idempotency_key\":\"k\"}"), Err(unknown), "where none is looked for");
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
    let leaf =
        prop_oneof![Just(json!(null)), any::<i32>().prop_map(|n| json!(n)), ".{0,8}".prop_map(|s| json!(s))];
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
