//! Lists: page after page, as one table or one document. A page may be short, even empty, and still have a next.

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use tidewheel_api::client::{Call, Client};
use tidewheel_core::limits::{PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX};

use crate::document::Document;
use crate::failure::Failure;
use crate::json;
use crate::out::{Column, Out, Rows};
use crate::watch::{self, WatchArgs};

/// How much of a list is wanted.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How many")]
pub(crate) struct PageArgs {
    /// At most so many
    #[arg(long, value_name = "COUNT", default_value_t = PAGE_COUNT_DEFAULT, conflicts_with = "all")]
    limit: usize,
    /// All there are
    #[arg(long)]
    all: bool,
    /// Goes on where an earlier list ended
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    watch: WatchArgs,
}

/// A page, as sent.
#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

/// How items become rows.
pub(crate) struct Layout {
    /// The columns.
    pub(crate) columns: &'static [Column],
    /// An item's cells, one per column.
    pub(crate) row: fn(&Document) -> Vec<Option<String>>,
}

/// Prints what `call` lists, again and again if it is to be watched.
pub(crate) async fn print(
    client: &Client,
    call: impl Fn() -> Call,
    args: &PageArgs,
    layout: &Layout,
    out: Out,
) -> Result<(), Failure> {
    watch::repeat(args.watch, out, |out| list(client, &call, args, layout, out)).await
}

/// Prints what `call` lists, asking for as many pages as it takes. Nothing is kept but the page at hand.
async fn list(
    client: &Client,
    call: &impl Fn() -> Call,
    args: &PageArgs,
    layout: &Layout,
    out: Out,
) -> Result<(), Failure> {
    let mut left = if args.all { usize::MAX } else { args.limit };
    let mut cursor = args.cursor.clone();
    let mut printer = Printer { out, layout, printed: 0 };
    printer.begin()?;
    while left > 0 {
        let mut call = call().query("limit", &left.min(PAGE_COUNT_MAX).to_string());
        if let Some(cursor) = &cursor {
            call = call.query("cursor", cursor);
        }
        let page: Page = client.send(&call).await?.json()?;
        left = left.saturating_sub(page.items.len());
        printer.items(&page.items)?;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    printer.end(cursor.as_deref())
}

struct Printer<'a> {
    out: Out,
    layout: &'a Layout,
    printed: usize,
}

impl Printer<'_> {
    fn begin(&self) -> Result<(), Failure> {
        if self.out.is_json() {
            self.out.line("{\"items\":[")?;
        }
        Ok(())
    }

    fn items(&mut self, items: &[Box<RawValue>]) -> Result<(), Failure> {
        if self.out.is_json() {
            for item in items {
                let comma = if self.printed == 0 { "" } else { "," };
                self.out.line(&format!("{comma}{}", json::compact(item.get())))?;
                self.printed += 1;
            }
            return Ok(());
        }
        let rows = items.iter().filter_map(|item| serde_json::from_str(item.get()).ok());
        let rows: Vec<_> = rows.map(|item: Document| (self.layout.row)(&item)).collect();
        let titled = self.printed == 0;
        self.printed += rows.len();
        Ok(self.out.table(self.layout.columns, Rows { rows, titled })?)
    }

    fn end(&self, cursor: Option<&str>) -> Result<(), Failure> {
        if self.out.is_json() {
            let cursor = cursor.map_or(serde_json::Value::Null, Into::into);
            self.out.line(&format!("],\"next_cursor\":{cursor}}}"))?;
        } else if self.printed == 0 {
            self.out.note("There are none.");
        } else if let Some(cursor) = cursor {
            self.out
                .note(&format!("There may be more: --all shows all, --cursor {cursor} goes on from here."));
        }
        Ok(())
    }
}
