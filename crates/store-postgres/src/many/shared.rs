//! What the contract asks for small documents, all of them in the first database, and for the audit trail, each chain of which
//! is where its shard is.

use async_trait::async_trait;
use bytes::Bytes;
use tidewheel_core::audit::{ChainEnds, Record};
use tidewheel_core::time::Timestamp;
use tidewheel_store::{
    Audit, AuditQuery, Document, DocumentKey, DocumentQuery, Documents, Error, IfVersion, NewAct,
    StaleDocument,
};

use super::{Spread, merge};

#[async_trait]
impl Documents for Spread {
    async fn put_document(
        &self,
        key: DocumentKey,
        bytes: Option<Bytes>,
        if_version: IfVersion,
    ) -> Result<Result<u64, StaleDocument>, Error> {
        self.first()?.ask(|store| store.put_document(key, bytes, if_version)).await
    }

    async fn document(&self, key: &DocumentKey) -> Result<Option<Document>, Error> {
        self.first()?.ask(|store| store.document(key)).await
    }

    async fn documents(&self, query: DocumentQuery) -> Result<Vec<Document>, Error> {
        self.first()?.ask(|store| store.documents(query)).await
    }

    async fn newest_document_change(&self) -> Result<u64, Error> {
        self.first()?.ask(|store| store.newest_document_change()).await
    }
}

#[async_trait]
impl Audit for Spread {
    async fn append_acts(&self, now: Timestamp, acts: Vec<NewAct>) -> Result<(), Error> {
        let home = |act: &NewAct| self.home(&act.tenant);
        let appended = self.split_whole(acts, home, |part, acts| async move {
            let count = acts.len();
            part.ask(move |store| store.append_acts(now, acts)).await.map(|()| vec![(); count])
        });
        appended.await.map(drop)
    }

    /// A trail with a part of it missing is none: it fails while a database is away.
    async fn audit_records(&self, query: AuditQuery) -> Result<Vec<Record>, Error> {
        let lists =
            self.ask_whole(self.all(), |part| part.ask(move |store| store.audit_records(query))).await?;
        Ok(merge::records(lists, query.order, query.count_max))
    }

    async fn audit_chains(&self) -> Result<Vec<ChainEnds>, Error> {
        let all = self.ask_whole(self.all(), |part| part.ask(|store| store.audit_chains())).await?;
        let mut chains: Vec<ChainEnds> = all.into_iter().flatten().collect();
        chains.sort_by_key(|ends| ends.chain);
        Ok(chains)
    }

    async fn drop_audit(&self, before: Timestamp) -> Result<(), Error> {
        let dropped = self.ask_whole(self.all(), |part| part.ask(move |store| store.drop_audit(before)));
        dropped.await.map(drop)
    }
}
