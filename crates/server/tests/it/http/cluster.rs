//! What a server tells of itself and its cluster.

use serde_json::json;
use tidewheel_core::zones::Zones;

use crate::http::harness::Api;

#[tokio::test]
async fn a_server_on_its_own_is_a_cluster_of_one() {
    let api = Api::new().await;
    let cluster = api.get("/v1/cluster").await.json();
    assert_eq!((&cluster["store"], &cluster["shards"]), (&json!("memory"), &json!(4)));
    let database = json!({"version": Zones::bundled().version(), "source": "bundled"});
    assert_eq!(cluster["tz_database"], database);
    let [node] = cluster["nodes"].as_array().unwrap().as_slice() else { panic!("{cluster}") };
    let epoch = api.engine.held()[0].epoch;
    assert_eq!(node["leases"], json!([{"first_shard": 0, "last_shard": 3, "epoch": epoch}]));
    assert!(epoch > 0);
    assert_eq!((&node["shards"], &node["state"]), (&json!(4), &json!("serving")));
    assert_eq!(node["started_at"], json!(api.engine.started_at().to_string()));
    assert_eq!(node["tz_database"], database);
    assert_eq!(cluster["lag_ms"], node["lag_ms"]);
}
