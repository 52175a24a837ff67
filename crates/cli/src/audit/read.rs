//! Reading the audit trail from end to end, a page at a time. Nothing is kept but the page at hand.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidewheel_api::client::{Call, Client};
use tidewheel_core::limits::PAGE_COUNT_MAX;

use crate::failure::Failure;

#[derive(Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// Calls `each` with every record that `call` finds, oldest first.
pub(super) async fn each_page(
    client: &Client,
    call: impl Fn() -> Call,
    mut each: impl FnMut(&RawValue) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut cursor: Option<String> = None;
    loop {
        let mut call = call().query("order", "oldest").query("limit", &PAGE_COUNT_MAX.to_string());
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page: Page = client.send(&call).await?.json()?;
        page.items.iter().try_for_each(|item| each(item))?;
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(()),
        }
    }
}
