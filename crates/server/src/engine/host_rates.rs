//! How many pushes per second may begin to a host: one rate for each host, and others for those that are named.

use std::str::FromStr;

/// Pushes per second that may be asked for.
const RATE_PER_S_MAX: u32 = 1_000_000;

/// The rates of all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostRates {
    /// Of each host that is not named; none is without a bound.
    pub each_per_s: Option<u32>,
    /// Of those that are named, in the order they are tried.
    pub named: Vec<HostRate>,
}

/// The rate of hosts of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRate {
    /// `api.example.com`, `api.example.com:8080`, or `*.example.com` for every host below it.
    pub pattern: Box<str>,
    /// Pushes per second.
    pub per_s: u32,
}

/// One rate as it is written: `50`, or `api.example.com=5`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrittenRate {
    /// Of each host.
    Each(u32),
    /// Of hosts of one name.
    Named(HostRate),
}

impl FromStr for WrittenRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |digits: &str| {
            let digits = digits.trim().trim_end_matches("/s").replace('_', "");
            let number = digits.parse::<u32>().ok().filter(|rate| (1..=RATE_PER_S_MAX).contains(rate));
            number.ok_or_else(|| {
                format!("{text:?} is not a rate like 50 or api.example.com=5, from 1 to {RATE_PER_S_MAX} per second")
            })
        };
        match text.rsplit_once('=') {
            None => rate(text).map(Self::Each),
            Some((pattern, digits)) => {
                let pattern = pattern.trim().to_ascii_lowercase();
                if !is_host_pattern(&pattern) {
                    return Err(format!(
                        "{text:?}: {pattern:?} is not a host like api.example.com or *.example.com"
                    ));
                }
                Ok(Self::Named(HostRate { pattern: pattern.into(), per_s: rate(digits)? }))
            }
        }
    }
}

impl HostRates {
    /// Adds one as it was written; of two for the same hosts, the later counts.
    #[must_use]
    pub fn with(mut self, written: WrittenRate) -> Self {
        match written {
            WrittenRate::Each(per_s) => self.each_per_s = Some(per_s),
            WrittenRate::Named(rate) => {
                self.named.retain(|other| other.pattern != rate.pattern);
                self.named.push(rate);
            }
        }
        self
    }

    /// Whether none is set.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.each_per_s.is_none() && self.named.is_empty()
    }

    /// The rate of `scheme://host:port`.
    #[must_use]
    pub fn of(&self, origin: &str) -> Option<u32> {
        let named = self.named.iter().find(|rate| is_meant(&rate.pattern, origin));
        named.map(|rate| rate.per_s).or(self.each_per_s)
    }
}

/// Whether hosts can be named so.
pub(super) fn is_host_pattern(pattern: &str) -> bool {
    !pattern.is_empty() && !pattern.contains(['/', ' '])
}

/// Whether a pattern means the host of `scheme://host:port`.
pub(super) fn is_meant(pattern: &str, origin: &str) -> bool {
    let authority = origin.split_once("://").map_or(origin, |(_, rest)| rest).to_ascii_lowercase();
    let host = authority.rsplit_once(':').filter(|(host, _)| !host.ends_with(':')).map_or(
        &*authority,
        |(host, port)| {
            if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { &authority }
        },
    );
    match pattern.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => pattern == host || pattern == authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(written: &[&str]) -> HostRates {
        written.iter().fold(HostRates::default(), |rates, text| rates.with(text.parse().unwrap()))
    }

    #[test]
    fn a_named_host_has_its_own_rate_and_the_others_the_usual() {
        let rates = rates(&["50", "API.example.com=5/s", "*.example.org=7", "127.0.0.1:8080=9", "50=3"]);
        for (origin, rate) in [
            ("https://api.example.com", 5),
            ("https://API.EXAMPLE.com:8443", 5),
            ("https://example.org", 50),
            ("https://a.b.example.org:1", 7),
            ("http://127.0.0.1:8080", 9),
            ("http://127.0.0.1:8081", 50),
            ("http://[::1]:80", 50),
        ] {
            assert_eq!(rates.of(origin), Some(rate), "{origin}");
        }
        assert_eq!(HostRates::default().of("http://x"), None);
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "0", "-1", "x", "a.b=", "a.b=0", "=5", "http://a.b=5", "1000001"] {
            assert!(text.parse::<WrittenRate>().is_err(), "{text}");
        }
    }
}
