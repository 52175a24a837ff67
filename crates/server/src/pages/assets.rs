//! Every file of the pages, by name.

/// A file that is served as it is.
#[derive(Debug)]
pub(super) struct Asset {
    /// Its name under `/assets/`.
    pub(super) name: &'static str,
    /// Its media type.
    pub(super) kind: &'static str,
    pub(super) bytes: &'static [u8],
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// The document that every page starts from.
pub(super) const SHELL: Asset =
    Asset { name: "index.html", kind: HTML, bytes: include_bytes!("assets/index.html") };

macro_rules! assets {
    ($($kind:ident $name:literal,)*) => {
        /// What the document loads.
        pub(super) const ASSETS: &[Asset] = &[
            $(Asset { name: $name, kind: $kind, bytes: include_bytes!(concat!("assets/", $name)) },)*
        ];
    };
}

assets! {
    IMAGE "icon.svg",
    STYLE "base.css",
    STYLE "parts.css",
    SCRIPT "theme.js",
    SCRIPT "app.js",
    SCRIPT "api.js",
    SCRIPT "charts.js",
    SCRIPT "dialogs.js",
    SCRIPT "dom.js",
    SCRIPT "json-text.js",
    SCRIPT "keys.js",
    SCRIPT "live.js",
    SCRIPT "parts.js",
    SCRIPT "time.js",
    SCRIPT "pages/overview.js",
    SCRIPT "pages/jobs.js",
    SCRIPT "pages/job.js",
    SCRIPT "pages/job-timeline.js",
    SCRIPT "pages/schedules.js",
    SCRIPT "pages/schedule.js",
    SCRIPT "pages/schedule-form.js",
    SCRIPT "pages/fires.js",
    SCRIPT "pages/dead-letters.js",
    SCRIPT "pages/queues.js",
    SCRIPT "pages/tenants.js",
    SCRIPT "pages/cluster.js",
    SCRIPT "pages/sign-in.js",
}
