//! Known signatures, made by other implementations.

use serde_json::Value;
use tidewheel_core::webhook::{Headers, Secret, TOLERANCE_S, sign, verify};

/// A text, or what stands before, how many of `x`, and what stands after.
fn body(value: &Value) -> String {
    if let Some(text) = value.as_str() {
        return text.to_owned();
    }
    let count = usize::try_from(value[1].as_u64().unwrap()).unwrap();
    format!("{}{}{}", value[0].as_str().unwrap(), "x".repeat(count), value[2].as_str().unwrap())
}

#[test]
fn every_known_signature_is_made_and_verified() {
    let mut cases = 0;
    for line in include_str!("../data/webhooks.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let secrets: Vec<Secret> = case["secrets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| Secret::parse(text.as_str().unwrap()).unwrap())
            .collect();
        let (id, timestamp_s) = (case["id"].as_str().unwrap(), case["timestamp"].as_i64().unwrap());
        let body = body(&case["body"]);
        let signature = sign(&secrets, id, timestamp_s, body.as_bytes());
        assert_eq!(signature, case["signature"].as_str().unwrap(), "{}", case["case"]);
        let timestamp = timestamp_s.to_string();
        let headers = Headers { id: Some(id), timestamp: Some(&timestamp), signature: Some(&signature) };
        let verdict = verify(&secrets, headers, body.as_bytes(), timestamp_s, TOLERANCE_S);
        assert_eq!(verdict, Ok(()), "{}", case["case"]);
        cases += 1;
    }
    assert_eq!(cases, 10);
}
