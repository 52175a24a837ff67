//! Small documents.

use std::sync::Arc;

use bytes::Bytes;
use tidewheel_core::names::Tenant;

use super::Home;
use super::trial::{Trial, tenant};
use tidewheel_store::{Document, DocumentKey, DocumentQuery, IfVersion, StaleDocument, Store};

fn key(kind: &'static str, tenant: &Tenant, name: &str) -> DocumentKey {
    DocumentKey { kind, tenant: tenant.clone(), name: name.into() }
}

async fn put(
    store: &dyn Store,
    key: &DocumentKey,
    text: &str,
    if_version: IfVersion,
) -> Result<u64, StaleDocument> {
    let bytes = Bytes::copy_from_slice(text.as_bytes());
    store.put_document(key.clone(), Some(bytes), if_version).await.expect("answered")
}

async fn delete(store: &dyn Store, key: &DocumentKey, if_version: IfVersion) -> Result<u64, StaleDocument> {
    store.put_document(key.clone(), None, if_version).await.expect("answered")
}

async fn text(store: &dyn Store, key: &DocumentKey) -> Option<String> {
    let found = store.document(key).await.expect("read");
    found.map(|found| String::from_utf8_lossy(&found.bytes).into_owned())
}

async fn newest(store: &dyn Store) -> u64 {
    store.newest_document_change().await.expect("read")
}

/// Stored, replaced and deleted, byte for byte, each by its kind, tenant and name, also over reopening.
pub async fn documents_are_kept(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let (acme, globex) = (tenant("acme"), tenant("globex"));
    let one = key("tenant", &acme, "settings");
    assert_eq!(newest(&*trial.store).await, 0);
    assert_eq!(trial.store.document(&one).await.expect("read"), None);
    put(&*trial.store, &one, "first", IfVersion::Any).await.expect("stored");
    put(&*trial.store, &one, "\u{0}second", IfVersion::Any).await.expect("stored");
    for (other, says) in [
        (key("tenant", &globex, "settings"), "of another tenant"),
        (key("key", &acme, "settings"), "of another kind"),
        (key("tenant", &acme, "settings2"), "of another name"),
        (key("tenant", &acme, "empty"), ""),
        (key("tenant", &acme, "gone"), "gone"),
    ] {
        put(&*trial.store, &other, says, IfVersion::Any).await.expect("stored");
    }
    delete(&*trial.store, &key("tenant", &acme, "gone"), IfVersion::Any).await.expect("deleted");
    let trial = trial.reopen().await;
    assert_eq!(text(&*trial.store, &one).await.as_deref(), Some("\u{0}second"));
    assert_eq!(
        text(&*trial.store, &key("tenant", &globex, "settings")).await.as_deref(),
        Some("of another tenant")
    );
    assert_eq!(text(&*trial.store, &key("key", &acme, "settings")).await.as_deref(), Some("of another kind"));
    assert_eq!(text(&*trial.store, &key("tenant", &acme, "empty")).await.as_deref(), Some(""));
    assert_eq!(text(&*trial.store, &key("tenant", &acme, "gone")).await, None);
    assert_eq!(text(&*trial.store, &key("tenant", &acme, "sett")).await, None);
}

/// A change that meant another version is not made; a version never comes again.
pub async fn a_version_guards_a_document(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let (store, one) = (&*trial.store, key("key", &tenant("acme"), "one"));
    let absent = Err(StaleDocument { version: None });
    assert_eq!(put(store, &one, "x", IfVersion::Is(1)).await, absent);
    assert_eq!(delete(store, &one, IfVersion::Is(1)).await, absent);
    assert_eq!(newest(store).await, 0, "what was refused is no change");
    let first = put(store, &one, "a", IfVersion::Absent).await.expect("stored");
    assert_eq!(put(store, &one, "b", IfVersion::Absent).await, Err(StaleDocument { version: Some(first) }));
    let second = put(store, &one, "b", IfVersion::Is(first)).await.expect("stored");
    assert!(first < second);
    let stale = Err(StaleDocument { version: Some(second) });
    assert_eq!(put(store, &one, "c", IfVersion::Is(first)).await, stale);
    assert_eq!(delete(store, &one, IfVersion::Is(first)).await, stale);
    assert_eq!(text(store, &one).await.as_deref(), Some("b"));
    let deleted = delete(store, &one, IfVersion::Is(second)).await.expect("deleted");
    assert!(second < deleted);
    assert_eq!(newest(store).await, deleted);
    assert_eq!(delete(store, &one, IfVersion::Any).await, Ok(deleted), "nothing changed");
    let trial = trial.reopen().await;
    assert_eq!(newest(&*trial.store).await, deleted);
    let again = put(&*trial.store, &one, "a", IfVersion::Absent).await.expect("stored");
    assert!(deleted < again);
    let found = trial.store.document(&one).await.expect("read");
    assert_eq!(found, Some(Document { key: one, version: again, bytes: Bytes::from_static(b"a") }));
}

/// Of one kind, of one tenant or of all, by tenant and name, page by page.
pub async fn documents_are_listed(home: &dyn Home) {
    let trial = Trial::start(home).await;
    let tenants = ["a", "ab", "b"].map(tenant);
    for tenant in &tenants {
        for name in ["2", "1", "10"] {
            put(&*trial.store, &key("type", tenant, name), name, IfVersion::Any).await.expect("stored");
        }
        put(&*trial.store, &key("typed", tenant, "0"), "", IfVersion::Any).await.expect("stored");
    }
    let all: Vec<_> =
        tenants.iter().flat_map(|tenant| ["1", "10", "2"].map(|name| key("type", tenant, name))).collect();
    for count_max in 1..11 {
        let mut found = Vec::new();
        let mut after: Option<(Tenant, Arc<str>)> = None;
        loop {
            let query = DocumentQuery { kind: "type", tenant: None, after: after.clone(), count_max };
            let page = trial.store.documents(query).await.expect("read");
            let is_last = page.len() < count_max;
            found.extend(page.into_iter().map(|document| document.key));
            after = found.last().map(|last| (last.tenant.clone(), Arc::clone(&last.name)));
            if is_last {
                break;
            }
        }
        assert_eq!(found, all, "pages of {count_max}");
    }
    let query = |after: Option<(Tenant, Arc<str>)>| DocumentQuery {
        kind: "type",
        tenant: Some(tenant("a")),
        after,
        count_max: 10,
    };
    let own = trial.store.documents(query(None)).await.expect("read");
    assert_eq!(own.iter().map(|document| &*document.key.name).collect::<Vec<_>>(), ["1", "10", "2"]);
    assert!(own.iter().all(|document| document.bytes.as_ref() == document.key.name.as_bytes()));
    let rest = trial.store.documents(query(Some((tenant("a"), "1".into())))).await.expect("read");
    assert_eq!(rest.len(), 2);
}
