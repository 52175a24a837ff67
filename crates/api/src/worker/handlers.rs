//! Which handler runs which type of job.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::failure::Failure;

/// What a handler came to: a result as JSON, empty when there is none, or what is to become of the job.
pub(super) type Verdict = Result<Bytes, Failure>;
pub(super) type Work = Pin<Box<dyn Future<Output = Verdict> + Send>>;
/// A handler whose payload and result are bytes.
pub(super) type Handler = Arc<dyn Fn(Context) -> Work + Send + Sync>;

/// Handlers by type.
#[derive(Clone, Default)]
pub(super) struct Handlers {
    by_type: BTreeMap<String, Handler>,
    any: Option<Handler>,
}

impl Handlers {
    pub(super) fn add(&mut self, kind: String, handler: Handler) {
        self.by_type.insert(kind, handler);
    }

    pub(super) fn add_any(&mut self, handler: Handler) {
        self.any = Some(handler);
    }

    pub(super) fn of(&self, kind: &str) -> Option<&Handler> {
        self.by_type.get(kind).or(self.any.as_ref())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_type.is_empty() && self.any.is_none()
    }

    /// The types to ask for; none means all.
    pub(super) fn types(&self) -> Vec<String> {
        if self.any.is_some() { Vec::new() } else { self.by_type.keys().cloned().collect() }
    }
}

/// A handler of a payload of one shape.
pub(super) fn typed<P, R, F, Fut>(handler: F) -> Handler
where
    P: DeserializeOwned + Send,
    R: Serialize,
    F: Fn(Context, P) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, Failure>> + Send + 'static,
{
    Arc::new(move |context: Context| match serde_json::from_slice::<P>(&context.job().payload) {
        Ok(payload) => {
            let work = handler(context, payload);
            Box::pin(async move { to_json(&work.await?) })
        }
        Err(fault) => {
            let failure = Failure::Final(format!("the payload is not what the handler takes: {fault}"));
            Box::pin(std::future::ready(Err(failure)))
        }
    })
}

/// A handler of any payload, as it was submitted.
pub(super) fn raw<F, Fut>(handler: F) -> Handler
where
    F: Fn(Context, Bytes) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Bytes, Failure>> + Send + 'static,
{
    Arc::new(move |context: Context| {
        let payload = context.job().payload.clone();
        Box::pin(handler(context, payload))
    })
}

fn to_json(result: &impl Serialize) -> Verdict {
    let json = serde_json::to_vec(result)
        .map_err(|fault| Failure::Final(format!("the handler's result is no JSON: {fault}")))?;
    if json == b"null" {
        return Ok(Bytes::new());
    }
    Ok(json.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::v1::LeasedJob;
    use crate::worker::context::Attempt;

    fn context(payload: &'static str) -> Context {
        let job = LeasedJob { payload: payload.into(), ..LeasedJob::default() };
        Context::new(Arc::new(Attempt::new(job)))
    }

    #[tokio::test]
    async fn a_typed_handler_reads_its_payload_and_writes_its_result() {
        let double = typed(|_, n: u32| async move { Ok(n * 2) });
        assert_eq!(double(context("21")).await, Ok(Bytes::from_static(b"42")));
        let refused = double(context("\"x\"")).await;
        assert!(matches!(refused, Err(Failure::Final(why)) if why.contains("not what the handler takes")));
        let silent = typed(|_, (): ()| async move { Ok(()) });
        assert_eq!(silent(context("null")).await, Ok(Bytes::new()));
    }
}
