//! Small documents: one row each. The newest change's number stands in `settings`, whose row every change locks, so that
//! changes are judged one after the other.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::names::Tenant;
use tidewheel_store::{Document, DocumentKey, DocumentQuery, Documents, Error, IfVersion, StaleDocument};
use tokio_postgres::Row;

use crate::connections::Lane;
use crate::fault::Trouble;
use crate::record::Unreadable;
use crate::sql;
use crate::store::{Database, PostgresStore};

fn number(value: i64) -> Result<u64, Trouble> {
    u64::try_from(value).map_err(|_| Unreadable::Nonsense("the number of a document's change").into())
}

fn read(kind: &'static str, row: &Row) -> Result<Document, Trouble> {
    let tenant =
        Tenant::new(row.try_get("tenant")?).map_err(|_| Unreadable::Nonsense("a document's tenant"))?;
    Ok(Document {
        key: DocumentKey { kind, tenant, name: Arc::from(row.try_get::<_, &str>("name")?) },
        version: number(row.try_get("version")?)?,
        bytes: Bytes::copy_from_slice(row.try_get("bytes")?),
    })
}

impl Database {
    async fn put_document_now(
        &self,
        key: &DocumentKey,
        bytes: Option<&Bytes>,
        if_version: IfVersion,
    ) -> Result<Result<u64, StaleDocument>, Trouble> {
        let transaction = self.connections.begin(Lane::Caller).await?;
        let outcome = async {
            let client = transaction.client()?;
            let (tenant, name) = (key.tenant.as_str(), &*key.name);
            let newest = client.query_one("SELECT document_change FROM settings FOR UPDATE", &[]).await?;
            let newest = number(newest.try_get(0)?)?;
            let statement = client.prepare_cached(sql::FIND_DOCUMENT).await?;
            let row = client.query_opt(&statement, &[&key.kind, &tenant, &name]).await?;
            let there = row.map(|row| read(key.kind, &row)).transpose()?.map(|document| document.version);
            if !if_version.allows(there) {
                return Ok(Err(StaleDocument { version: there }));
            }
            if there.is_none() && bytes.is_none() {
                return Ok(Ok(newest));
            }
            let version = i64::try_from(newest + 1).unwrap_or(i64::MAX);
            match bytes {
                Some(bytes) => {
                    let statement = client.prepare_cached(sql::PUT_DOCUMENT).await?;
                    client.execute(&statement, &[&key.kind, &tenant, &name, &version, &&**bytes]).await?;
                }
                None => {
                    let statement = client.prepare_cached(sql::DELETE_DOCUMENT).await?;
                    client.execute(&statement, &[&key.kind, &tenant, &name]).await?;
                }
            }
            client.execute("UPDATE settings SET document_change = $1", &[&version]).await?;
            Ok(Ok(newest + 1))
        }
        .await;
        transaction.end(outcome).await
    }

    async fn document_now(&self, key: &DocumentKey) -> Result<Option<Document>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::FIND_DOCUMENT).await?;
        let row = client.query_opt(&statement, &[&key.kind, &key.tenant.as_str(), &&*key.name]).await?;
        row.map(|row| read(key.kind, &row)).transpose()
    }

    async fn documents_now(&self, query: &DocumentQuery) -> Result<Vec<Document>, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached(sql::LIST_DOCUMENTS).await?;
        let tenant = query.tenant.as_ref().map(Tenant::as_str);
        let (after, last) = query.after.as_ref().map(|(tenant, name)| (tenant.as_str(), &**name)).unzip();
        let count_max = i64::try_from(query.count_max).unwrap_or(i64::MAX);
        let rows = client.query(&statement, &[&query.kind, &tenant, &after, &last, &count_max]).await?;
        rows.iter().map(|row| read(query.kind, row)).collect()
    }

    async fn newest_document_change_now(&self) -> Result<u64, Trouble> {
        let client = self.connections.get(Lane::Caller).await?;
        let statement = client.prepare_cached("SELECT document_change FROM settings").await?;
        number(client.query_one(&statement, &[]).await?.try_get(0)?)
    }
}

#[async_trait]
impl Documents for PostgresStore {
    async fn put_document(
        &self,
        key: DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<Result<u64, StaleDocument>, Error> {
        let put = self.database.put_document_now(&key, bytes.as_ref(), if_version);
        self.database.connections.bounded(put).await
    }

    async fn document(&self, key: &DocumentKey) -> Result<Option<Document>, Error> {
        self.database.connections.bounded(self.database.document_now(key)).await
    }

    async fn documents(&self, query: DocumentQuery) -> Result<Vec<Document>, Error> {
        let list = self.database.documents_now(&query);
        self.database.connections.bounded(list).await
    }

    async fn newest_document_change(&self) -> Result<u64, Error> {
        let ask = self.database.newest_document_change_now();
        self.database.connections.bounded(ask).await
    }
}
