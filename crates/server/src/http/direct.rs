//! `POST /v1/jobs` without the router. Every job comes this way, most of them one by one, and what a router does for a
//! request (a look at its address, a copy of the layers around each route, boxes for what they hand on) costs as much as
//! taking the job in. What is asked and recorded of the call is the same, in the same order, as on the other routes: see
//! [`guard_route`](crate::access::guard_route) and [`access_log`].

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Method, Uri};

use super::access_log::Seen;
use super::app::App;
use super::caller::Caller;
use super::jobs::submit::{Answer, submit};
use super::problem::Problem;
use crate::access::{Guard, Peer};
use crate::metrics::Call;

/// The call, as the table of calls names it.
const CALL: &str = "post /v1/jobs";
const PATHS: [&str; 2] = ["/v1/jobs", "/api/v1/jobs"];

/// Takes jobs in one by one.
pub(crate) struct Direct {
    app: Arc<App>,
    guard: Guard,
}

/// A submission from within: what it says, and where it came from.
pub(crate) struct Sent {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
    pub(crate) peer: Option<Peer>,
}

impl Direct {
    pub(super) fn new(app: &Arc<App>) -> Option<Arc<Self>> {
        let guard = Guard::of(CALL).filter(Guard::is_summed)?;
        Some(Arc::new(Self { app: Arc::clone(app), guard }))
    }

    /// Whether a request is such a call.
    pub(super) fn is_for(method: &Method, uri: &Uri) -> bool {
        method == Method::POST && PATHS.contains(&uri.path())
    }

    /// Answers, counts and logs.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request,
        peer: Option<Peer>,
    ) -> Result<Response, Infallible> {
        let (clock, metrics) = (self.app.engine.clock(), self.app.engine.metrics());
        let seen = Seen::of(&request, Call::Submit, &**clock);
        let (parts, body) = request.into_parts();
        let answer = self.take_in(&parts.uri, Sent { headers: parts.headers, body, peer }).await;
        let response = answer.map_or_else(Problem::into_response, Answer::into_response);
        Ok(seen.answered(response, &**clock, metrics))
    }

    /// Takes a job in for whoever may submit jobs, and sums the call up in the audit trail.
    pub(crate) async fn take_in(&self, uri: &Uri, sent: Sent) -> Result<Answer, Problem> {
        let Sent { headers, body, peer } = sent;
        let access = &self.app.access;
        let identity = access.admit(&self.guard, &Method::POST, uri, &headers, peer).await?;
        let caller = Caller::with(&headers, identity.clone());
        let summed = self.guard.begin_sum(access.auditor(), caller.as_ref().ok(), &identity, peer);
        let answer = match caller {
            Ok(caller) => submit(&self.app, caller, headers, body).await,
            Err(problem) => Err(problem),
        };
        if let Some(summed) = summed {
            let status = answer.as_ref().map_or_else(Problem::status, Answer::status);
            summed.served(status);
        }
        answer
    }
}
