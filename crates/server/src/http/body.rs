//! Reading bodies. Each is bounded in size and must keep a pace; all together are bounded in bytes, so that
//! thousands of slow or large uploads cannot fill the memory.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, ORIGIN};
use http_body::Body as _;
use tidewheel_api::wire::fault::Code;
use tokio::sync::OwnedSemaphorePermit;

use super::app::App;
use super::problem::Problem;
use crate::audit::Fields;

/// How much of a body that is too large is read and thrown away. A client that is still sending when the
/// connection closes may never see the answer.
const DISCARD_BYTES_MAX: usize = 256 * 1_024 * 1_024;
/// And for how long.
const DISCARD_TIME_MAX: Duration = Duration::from_secs(10);

/// A body as it arrives.
pub(super) struct Intake {
    app: Arc<App>,
    body: Body,
    /// Runs while the client is waited for.
    patience: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Bytes since then.
    progress: usize,
    /// What is held of the budget for all bodies.
    held: Option<OwnedSemaphorePermit>,
    received: usize,
    bytes_max: usize,
    /// The client waits for a sign before it sends, so nothing needs to be thrown away.
    waits_for_sign: bool,
}

impl Intake {
    /// Opens a request's body, if it is small enough and of a kind that is read here.
    pub(super) fn open(
        app: Arc<App>,
        headers: &HeaderMap,
        body: Body,
        bytes_max: usize,
    ) -> Result<Self, Problem> {
        let declared = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let mut intake = Self {
            app,
            body,
            patience: None,
            progress: 0,
            held: None,
            received: 0,
            bytes_max,
            waits_for_sign: headers.contains_key(EXPECT),
        };
        let refused = if declared.is_some_and(|bytes| bytes > bytes_max as u64) {
            Err(too_large(bytes_max))
        } else {
            check_kind(headers)
        };
        match refused {
            Ok(()) => Ok(intake),
            Err(problem) => {
                intake.discard();
                Err(problem)
            }
        }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(bytes) = poll_fn(|context| self.poll_next(context)).await? else { return Ok(None) };
        self.received += bytes.len();
        if self.received > self.bytes_max {
            self.discard();
            return Err(too_large(self.bytes_max));
        }
        self.reserve(bytes.len())?;
        Ok(Some(bytes))
    }

    /// What is held of the budget, to be given back when the request is done with.
    pub(super) fn into_permit(self) -> Option<OwnedSemaphorePermit> {
        self.held
    }

    /// Reads on beside the answer without keeping anything, as long as it comes and within bounds.
    pub(super) fn discard(&mut self) {
        self.held = None;
        if self.waits_for_sign {
            return;
        }
        let mut rest = Self {
            app: Arc::clone(&self.app),
            body: std::mem::take(&mut self.body),
            patience: None,
            progress: 0,
            held: None,
            received: 0,
            bytes_max: DISCARD_BYTES_MAX,
            waits_for_sign: false,
        };
        tokio::spawn(async move {
            let limit = rest.app.engine.clock().sleep(DISCARD_TIME_MAX);
            let reading = async {
                while rest.received < rest.bytes_max
                    && let Ok(Some(bytes)) = poll_fn(|context| rest.poll_next(context)).await
                {
                    rest.received += bytes.len();
                }
            };
            tokio::select! {
                () = reading => {}
                () = limit => {}
            }
        });
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Problem>> {
        let limits = self.app.limits;
        loop {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(fault))) => {
                    let detail = format!("the body broke off: {fault}");
                    return Poll::Ready(Err(Problem::new(Code::MalformedRequest, detail)));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers say nothing here.
                    let Ok(bytes) = frame.into_data() else { continue };
                    self.progress += bytes.len();
                    if self.progress >= limits.body_progress_bytes_min {
                        self.progress = 0;
                        self.patience = None;
                    }
                    return Poll::Ready(Ok(Some(bytes)));
                }
                Poll::Pending => {
                    let app = &self.app;
                    let patience = self.patience.get_or_insert_with(|| {
                        app.engine.clock().sleep(Duration::from_millis(limits.body_progress_ms))
                    });
                    return patience.as_mut().poll(context).map(|()| {
                        Err(Problem::new(Code::RequestTimeout, "the body came too slowly, or not at all"))
                    });
                }
            }
        }
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), Problem> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.app.bodies).try_acquire_many_owned(permits) else {
            return Err(Problem::new(Code::Overloaded, "too many large requests are under way; try again"));
        };
        match &mut self.held {
            Some(held) => held.merge(permit),
            None => self.held = Some(permit),
        }
        Ok(())
    }
}

/// A whole body of modest size, as text.
pub(super) struct Text {
    pub(super) text: String,
    _held: Option<OwnedSemaphorePermit>,
}

impl Text {
    pub(super) async fn read(app: &Arc<App>, headers: &HeaderMap, body: Body) -> Result<Self, Problem> {
        let mut intake = Intake::open(Arc::clone(app), headers, body, app.limits.body_bytes_max)?;
        let mut whole = Vec::new();
        while let Some(bytes) = intake.next().await? {
            whole.extend_from_slice(&bytes);
        }
        let text = String::from_utf8(whole)
            .map_err(|fault| Problem::new(Code::MalformedJson, format!("the body is not UTF-8: {fault}")))?;
        Ok(Self { text, _held: intake.into_permit() })
    }
}

impl FromRequest<Arc<App>> for Text {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let fields = request.extensions().get::<Fields>().cloned();
        let (parts, body) = request.into_parts();
        let text = Self::read(app, &parts.headers, body).await?;
        if let Some(fields) = fields {
            fields.note(&text.text);
        }
        Ok(text)
    }
}

/// Whether the body says it is one item per line.
pub(super) fn is_lines(headers: &HeaderMap) -> bool {
    matches!(
        media_type(headers).as_deref(),
        Some("application/x-ndjson" | "application/ndjson" | "application/jsonl" | "application/x-jsonlines")
    )
}

/// Refuses what is certainly not JSON. Forms and plain text are what `curl -d` says it sends, whatever it sends,
/// but also what a page of another site can make a browser send without asking; browsers name their origin.
fn check_kind(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(Problem::new(Code::UnsupportedMediaType, "the body is compressed; send it as it is"));
    }
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json") {
        return Ok(());
    }
    let Some(kind) = media_type(headers) else { return Ok(()) };
    if kind.contains("json") || kind == "application/octet-stream" {
        return Ok(());
    }
    let unsaid = matches!(kind.as_str(), "application/x-www-form-urlencoded" | "text/plain");
    if unsaid && !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let detail = format!("the body is of type {kind:?}; send `Content-Type: application/json`");
    Err(Problem::new(Code::UnsupportedMediaType, detail))
}

fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("?");
    let kind = value.split(';').next().unwrap_or(value).trim();
    Some(kind.chars().take(100).collect::<String>().to_ascii_lowercase())
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::new(
        Code::BodyTooLarge,
        format!("the body has more than {bytes_max} bytes, which is all that is read here"),
    )
}
