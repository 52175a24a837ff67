//! Reading single settings.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tidewheel_core::limits::{DATABASES_COUNT_MAX, DAY_MS, HOUR_MS, SCHEDULE_INTERVAL_MS_MIN, SECOND_MS};
use tidewheel_core::time::{format_duration, parse_duration};
use tidewheel_server::engine::{FairBy, WrittenLimit};
use tidewheel_server::traces::endpoint;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::secure::{Secure, yes_or_no};
use super::{AuditScope, Key, LISTEN_DEFAULT, LogFormat, ServeConfig};

/// The port of [`LISTEN_DEFAULT`].
const PORT_DEFAULT: u16 = 7400;
const PUSH_COUNT: RangeInclusive<usize> = 1..=65_536;
const BREAKER_FAILURES_COUNT: RangeInclusive<u32> = 0..=1_000_000;
const PERCENT: RangeInclusive<u32> = 0..=100;
const BREAKER_WINDOW_MS: RangeInclusive<i64> = SECOND_MS..=HOUR_MS;
const BREAKER_COOLDOWN_MS: RangeInclusive<i64> = 10..=HOUR_MS;
const CATCH_UP_JOBS_PER_S: RangeInclusive<u32> = 1..=1_000_000;
const SUBMISSIONS_COUNT: RangeInclusive<usize> = 100..=10_000_000;
/// History and the audit trail are dropped by the day, so less than one means nothing.
const HISTORY_MS: RangeInclusive<i64> = DAY_MS..=3_653 * DAY_MS;
const MIN_INTERVAL_MS: RangeInclusive<i64> = SCHEDULE_INTERVAL_MS_MIN..=DAY_MS;
const DRAIN_MS: RangeInclusive<i64> = 0..=HOUR_MS;

pub(super) fn listen_default() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, PORT_DEFAULT))
}

/// Sets `key` from text; the error says what would be right.
pub(super) fn set(
    config: &mut ServeConfig,
    secure: &mut Secure,
    key: Key,
    texts: &[String],
) -> Result<(), String> {
    if key.is_list() {
        return set_list(config, key, texts);
    }
    let text = texts.first().map(|text| text.trim()).unwrap_or_default();
    if text.is_empty() {
        return Err("must not be empty".to_owned());
    }
    match key {
        Key::AllowTarget | Key::PushPerHost | Key::HostRate | Key::Store => {}
        Key::Data => config.data = PathBuf::from(text),
        Key::StoreFile => config.store_file = Some(PathBuf::from(text)),
        Key::TlsCert => secure.tls_cert = Some(PathBuf::from(text)),
        Key::TlsKeyFile => secure.tls_key = Some(PathBuf::from(text)),
        Key::TlsClientCa => secure.tls_client_ca = Some(PathBuf::from(text)),
        Key::TlsClientOptional => secure.tls_client_optional = yes_or_no(text)?,
        Key::OidcIssuer => secure.oidc_issuer = Some(text.to_owned()),
        Key::OidcAudience => secure.oidc_audience = Some(text.to_owned()),
        Key::OidcKeysFile => secure.oidc_keys_file = Some(PathBuf::from(text)),
        Key::OidcJwksUrl => secure.oidc_jwks_url = Some(text.to_owned()),
        Key::OidcTenantClaim => text.clone_into(&mut secure.oidc_tenant_claim),
        Key::OidcRolesClaim => text.clone_into(&mut secure.oidc_roles_claim),
        Key::Listen => config.listen = listen(text)?,
        Key::AdminKeyFile => config.admin_key_file = Some(PathBuf::from(text)),
        Key::PushConcurrency => config.push_concurrency = number(text, PUSH_COUNT)?,
        Key::BreakerFailures => config.breaker.failures = number(text, BREAKER_FAILURES_COUNT)?,
        Key::BreakerPercent => config.breaker.percent = number(text.trim_end_matches('%'), PERCENT)?,
        Key::BreakerWindow => config.breaker.lately_ms = duration_ms(text, BREAKER_WINDOW_MS)?,
        Key::BreakerCooldown => config.breaker.cooldown_ms = duration_ms(text, BREAKER_COOLDOWN_MS)?,
        Key::BreakerCooldownMax => config.breaker.cooldown_ms_max = duration_ms(text, BREAKER_COOLDOWN_MS)?,
        Key::History => config.history_ms = duration_ms(text, HISTORY_MS)?,
        Key::Audit => config.audit = audit(text)?,
        Key::AuditRetention => config.audit_retention_ms = duration_ms(text, HISTORY_MS)?,
        Key::CatchUpRate => config.catch_up_jobs_per_s = number(text, CATCH_UP_JOBS_PER_S)?,
        Key::TenantCatchUpRate => config.tenant_catch_up_jobs_per_s = number(text, CATCH_UP_JOBS_PER_S)?,
        Key::FairBy => config.fair_by = fair_by(text)?,
        Key::SubmissionsMax => config.submissions_max = number(text, SUBMISSIONS_COUNT)?,
        Key::MinInterval => config.min_interval_ms = duration_ms(text, MIN_INTERVAL_MS)?,
        Key::TzDir => config.tz_dir = Some(PathBuf::from(text)),
        Key::Drain => config.drain = Duration::from_millis(duration_ms(text, DRAIN_MS)?.unsigned_abs()),
        Key::OtlpEndpoint => config.otlp_endpoint = Some(endpoint(text)?),
        Key::OtlpHeaders => config.otlp_headers = headers(text)?,
        Key::OtlpHeadersFile => config.otlp_headers = headers_in(text)?,
        Key::OtlpServiceName => text.clone_into(&mut config.otlp_service_name),
        Key::OtlpSampleRatio => config.otlp_sample_ratio = ratio(text)?,
        Key::LogFormat => config.log_format = log_format(text)?,
        Key::LogLevel => config.log_level = log_level(text)?,
    }
    Ok(())
}

/// The same for what may have several values.
fn set_list(config: &mut ServeConfig, key: Key, texts: &[String]) -> Result<(), String> {
    if key == Key::AllowTarget {
        let ranges: Result<Vec<_>, _> = texts.iter().map(|text| text.parse()).collect();
        config.allow_targets =
            ranges.map_err(|fault: tidewheel_server::push::CidrFault| fault.to_string())?;
        return Ok(());
    }
    if key == Key::PushPerHost {
        for text in texts {
            match text.parse()? {
                WrittenLimit::Each(count) => config.push_per_host = count,
                WrittenLimit::Named(host, count) => config.push_per_host_named.add(host, count),
            }
        }
        return Ok(());
    }
    if key == Key::HostRate {
        for text in texts {
            config.host_rates = std::mem::take(&mut config.host_rates).with(text.parse()?);
        }
        return Ok(());
    }
    if key == Key::Store {
        config.store = stores(texts.iter().map(String::as_str))?;
    }
    Ok(())
}

/// The URLs of databases, in their order: each text has one, or several with commas between them.
pub(crate) fn stores<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Vec<String>, String> {
    let mut urls: Vec<String> = Vec::new();
    for url in texts.flat_map(urls_in) {
        let url = store(&url)?;
        if urls.contains(&url) {
            return Err(
                "a database is given twice; each is given once, in the order they were made in".to_owned()
            );
        }
        urls.push(url);
    }
    if urls.len() > DATABASES_COUNT_MAX {
        return Err(format!(
            "{} databases are given, and at most {DATABASES_COUNT_MAX} can be used",
            urls.len()
        ));
    }
    if urls.is_empty() { store("").map(|_| urls) } else { Ok(urls) }
}

/// Cuts a list of URLs at its commas, but not at those between the hosts of one.
fn urls_in(text: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for piece in text.split(',') {
        match urls.last_mut() {
            Some(last) if !piece.contains("://") => {
                last.push(',');
                last.push_str(piece);
            }
            Some(_) | None => urls.push(piece.to_owned()),
        }
    }
    urls.iter().map(|url| url.trim().to_owned()).filter(|url| !url.is_empty()).collect()
}

/// The URL of a database. A fault does not repeat it: there may be a password in it.
pub fn store(text: &str) -> Result<String, String> {
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return Ok(text.to_owned());
    }
    Err("expected the URL of a PostgreSQL database, like postgres://user@host:5432/name; the embedded store is \
         chosen with --data"
        .to_owned())
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not an address and a port; write it like {LISTEN_DEFAULT} or [::1]:7400")
    })
}

/// What is wrong with listening to other machines, if that is meant and something is.
pub(super) fn open_to_others(config: &ServeConfig) -> Option<String> {
    let address = config.listen;
    let is_own = address.ip().to_canonical().is_loopback();
    (!is_own && config.admin_key_file.is_none() && config.oidc.is_none()).then(|| {
        format!(
            "{address} can be reached from other machines, which needs keys, and there are none; \
             give `--admin-key-file FILE`, or listen on loopback ({LISTEN_DEFAULT})"
        )
    })
}

fn number<T: FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let (min, max) = (range.start(), range.end());
    let wrong = || format!("{text:?} is not a whole number from {min} to {max}");
    text.replace('_', "").parse().ok().filter(|number| range.contains(number)).ok_or_else(wrong)
}

fn duration_ms(text: &str, range: RangeInclusive<i64>) -> Result<i64, String> {
    let ms = parse_duration(text).map_err(|fault| fault.to_string())?;
    if range.contains(&ms) {
        return Ok(ms);
    }
    let [min, max] = [*range.start(), *range.end()].map(format_duration);
    Err(format!("{text} is not between {min} and {max}"))
}

fn audit(text: &str) -> Result<AuditScope, String> {
    match text {
        "all" => Ok(AuditScope::All),
        "admin" => Ok(AuditScope::Admin),
        _ => Err(format!("{text:?} is neither all nor admin")),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| format!("{text:?} is not a number from 0 to 1"))
}

/// `name=value,name=value`, values percent-encoded where they must be. A fault repeats no value: there may be a key in it.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("write it like name=value,name=value")?;
        let name: HeaderName =
            name.trim().parse().map_err(|_| format!("{:?} is not a header's name", name.trim()))?;
        let mut value = percent_decoded(value.trim())
            .and_then(|value| HeaderValue::from_bytes(&value).ok())
            .ok_or_else(|| format!("what is given for {name} cannot be sent as a header"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// The same, from a file: one a line, or with commas.
fn headers_in(path: &str) -> Result<HeaderMap, String> {
    let text = std::fs::read_to_string(path).map_err(|fault| format!("{path}: {fault}"))?;
    headers(&text.trim().replace(['\r', '\n'], ","))
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut decoded = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        decoded.extend_from_slice(rest.as_bytes());
    }
    Some(decoded)
}

fn fair_by(text: &str) -> Result<FairBy, String> {
    match text {
        "count" => Ok(FairBy::Count),
        "run_time" => Ok(FairBy::RunTime),
        other => Err(format!("{other:?} is neither count nor run_time")),
    }
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(format!("{text:?} is neither text nor json")),
    }
}

fn log_level(text: &str) -> Result<String, String> {
    // A lone word that is no level would be taken for a module's name, and most of the log be lost.
    let lone = text
        .split(',')
        .find(|part| !part.contains(['=', '[']) && part.trim().parse::<LevelFilter>().is_err());
    match EnvFilter::try_new(text) {
        Ok(_) if lone.is_none() => Ok(text.to_owned()),
        Ok(_) | Err(_) => {
            Err(format!("{text:?} is not a level; levels are error, warn, info, debug and trace"))
        }
    }
}
