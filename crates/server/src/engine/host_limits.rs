//! How many pushes may be under way to a host: one number for each host, and others for those that are named.

use std::str::FromStr;

use super::host_rates::{is_host_pattern, is_meant};

/// Pushes under way to one host that may be asked for.
const PUSHES_COUNT_MAX: usize = 65_536;

/// The bounds of hosts that are named, in the order they are tried.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostLimits {
    named: Vec<(Box<str>, usize)>,
}

/// One bound as it is written: `256`, or `api.example.com=4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrittenLimit {
    /// Of each host.
    Each(usize),
    /// Of hosts of one name: `api.example.com`, `api.example.com:8080`, or `*.example.com` for every host below it.
    Named(Box<str>, usize),
}

impl FromStr for WrittenLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = |digits: &str| {
            let number = digits.trim().replace('_', "").parse::<usize>().ok();
            number.filter(|count| (1..=PUSHES_COUNT_MAX).contains(count)).ok_or_else(|| {
                format!(
                    "{text:?} is not a number like 256 or api.example.com=4, from 1 to {PUSHES_COUNT_MAX}"
                )
            })
        };
        match text.rsplit_once('=') {
            None => count(text).map(Self::Each),
            Some((pattern, digits)) => {
                let pattern = pattern.trim().to_ascii_lowercase();
                if !is_host_pattern(&pattern) {
                    return Err(format!(
                        "{text:?}: {pattern:?} is not a host like api.example.com or *.example.com"
                    ));
                }
                Ok(Self::Named(pattern.into(), count(digits)?))
            }
        }
    }
}

impl HostLimits {
    /// Adds one; of two for the same hosts, the later counts.
    pub fn add(&mut self, pattern: Box<str>, count: usize) {
        self.named.retain(|(other, _)| *other != pattern);
        self.named.push((pattern, count));
    }

    /// The bound of `scheme://host:port`, if it is named.
    #[must_use]
    pub fn of(&self, origin: &str) -> Option<usize> {
        self.named.iter().find(|(pattern, _)| is_meant(pattern, origin)).map(|(_, count)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_host_has_its_own_bound_and_the_others_none_of_it() {
        let mut limits = HostLimits::default();
        for text in ["API.example.com=5", "*.example.org=7", "api.example.com=4"] {
            match text.parse().unwrap() {
                WrittenLimit::Named(pattern, count) => limits.add(pattern, count),
                WrittenLimit::Each(count) => panic!("{text}: {count}"),
            }
        }
        assert_eq!(limits.of("https://api.example.com:8443"), Some(4));
        assert_eq!(limits.of("https://a.b.example.org"), Some(7));
        assert_eq!(limits.of("https://example.org"), None);
        assert_eq!("1_024".parse(), Ok(WrittenLimit::Each(1_024)));
    }

    #[test]
    fn what_is_no_bound_is_refused() {
        for text in ["", "0", "-1", "x", "a.b=", "a.b=0", "=5", "http://a.b=5", "65537"] {
            assert!(text.parse::<WrittenLimit>().is_err(), "{text}");
        }
    }
}
