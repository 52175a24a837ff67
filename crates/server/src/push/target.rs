//! Judging a target before a job is accepted for it: the URL in all its spellings, and the method.
//!
//! What passes here can still resolve to a refused address later; the connector judges that. What fails here is told to
//! the submitter while somebody is looking, so every fault says what to change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{Method, Uri};
use tidewheel_core::limits::URL_BYTES_MAX;

use super::address::{AddressPolicy, RefusedAddress};

/// The longest host name DNS can carry, without the final dot.
const HOST_BYTES_MAX: usize = 253;

/// The longest label of a host name.
const LABEL_BYTES_MAX: usize = 63;

/// The methods a target may be called with. CONNECT would turn the connection into a tunnel, TRACE echoes secrets.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Why a target is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("the target URL has {bytes} bytes; at most {URL_BYTES_MAX} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A space, control character, backslash or non-ASCII character.
    #[error(
        "the target URL contains {0:?}; percent-encode it, and write international host names in punycode"
    )]
    Character(char),
    /// Not an absolute URL.
    #[error("the target is not an absolute URL such as https://example.com/path")]
    Malformed,
    /// Neither `http` nor `https`.
    #[error("the target's scheme is `{0}`; only http and https are delivered to")]
    Scheme(String),
    /// `user:password@` in front of the host.
    #[error("the target URL carries a user name; send credentials as a header instead")]
    UserInfo,
    /// A `#` part, which no server would ever see.
    #[error("the target URL has a fragment (`#…`), which is never sent; remove it")]
    Fragment,
    /// No host, or one no DNS name can have.
    #[error("the target's host `{0}` is not a host name or an IP address")]
    Host(String),
    /// A port that is empty, zero or too large.
    #[error("the target's port is not a number from 1 to 65535")]
    Port,
    /// A number that some programs read as an IPv4 address and others as a name.
    #[error(
        "the target's host `{0}` is an ambiguous spelling of an IPv4 address; write all four numbers in decimal"
    )]
    AmbiguousAddress(String),
    /// `localhost` or a name under it, while loopback is closed.
    #[error(
        "the target's host `{0}` is this machine; the operator can open it with `--allow-target 127.0.0.0/8`"
    )]
    Localhost(String),
    /// A literal address the policy refuses.
    #[error("the target is not allowed: {0}")]
    Address(#[from] RefusedAddress),
    /// A method no target is called with.
    #[error("the target's method `{0}` is not one of GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS")]
    Method(String),
}

impl AddressPolicy {
    /// Reads and judges a target URL.
    ///
    /// # Errors
    /// The first fault found, worded for the submitter.
    pub fn check_url(&self, url: &str) -> Result<Uri, TargetFault> {
        if url.len() > URL_BYTES_MAX {
            return Err(TargetFault::TooLong { bytes: url.len() });
        }
        // Parsers disagree about what these mean inside a URL, and disagreement is how filters are passed.
        if let Some(bad) = url.chars().find(|c| !c.is_ascii_graphic() || matches!(c, '\\' | '"' | '<' | '>'))
        {
            return Err(TargetFault::Character(bad));
        }
        // The parser drops a fragment without a word, so it is looked for in the text.
        if url.contains('#') {
            return Err(TargetFault::Fragment);
        }
        let (scheme, rest) = url.split_once(':').ok_or(TargetFault::Malformed)?;
        check_scheme(scheme)?;
        if !rest.starts_with("//") {
            return Err(TargetFault::Malformed);
        }
        let authority = rest.trim_start_matches('/').split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err(TargetFault::UserInfo);
        }
        if rest.starts_with("///") || authority.is_empty() || authority.starts_with(':') {
            return Err(TargetFault::Host(String::new()));
        }
        let uri: Uri = url.parse().map_err(|_| TargetFault::Host(authority.to_owned()))?;
        self.check_uri(&uri)?;
        Ok(uri)
    }

    /// The part of [`Self::check_url`] that still shows in a parsed URL.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check_uri(&self, uri: &Uri) -> Result<(), TargetFault> {
        check_scheme(uri.scheme_str().ok_or(TargetFault::Malformed)?)?;
        let authority = uri.authority().ok_or(TargetFault::Malformed)?;
        let (text, host) = (authority.as_str(), authority.host());
        if text.contains('@') {
            return Err(TargetFault::UserInfo);
        }
        match text.strip_prefix(host) {
            Some("") => {}
            Some(port) => check_port(port)?,
            None => return Err(TargetFault::Host(host.to_owned())),
        }
        self.check_host(host)
    }

    fn check_host(&self, host: &str) -> Result<(), TargetFault> {
        if let Some(literal) = literal_address(host) {
            return Ok(self.check(literal)?);
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        if name.is_empty() || name.len() > HOST_BYTES_MAX || !name.split('.').all(is_label) {
            return Err(TargetFault::Host(host.to_owned()));
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        if is_number(last) {
            return Err(TargetFault::AmbiguousAddress(host.to_owned()));
        }
        if last.eq_ignore_ascii_case("localhost") && !self.allows_loopback() {
            return Err(TargetFault::Localhost(host.to_owned()));
        }
        Ok(())
    }

    fn allows_loopback(&self) -> bool {
        self.check(Ipv4Addr::LOCALHOST.into()).is_ok() || self.check(Ipv6Addr::LOCALHOST.into()).is_ok()
    }
}

/// Reads a target's method.
///
/// # Errors
/// [`TargetFault::Method`] when it is not one a target may be called with. Methods are upper case.
pub fn check_method(method: &str) -> Result<Method, TargetFault> {
    METHODS
        .iter()
        .find(|known| known.as_str() == method)
        .cloned()
        .ok_or_else(|| TargetFault::Method(method.to_owned()))
}

/// The address a URL's host spells out, if it is one: four decimal numbers, or IPv6 in brackets.
pub(super) fn literal_address(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    }
}

fn check_scheme(scheme: &str) -> Result<(), TargetFault> {
    if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http") {
        Ok(())
    } else {
        Err(TargetFault::Scheme(scheme.to_owned()))
    }
}

fn check_port(port: &str) -> Result<(), TargetFault> {
    let digits = port.strip_prefix(':').ok_or(TargetFault::Port)?;
    let number = digits.parse::<u16>().map_err(|_| TargetFault::Port)?;
    if number == 0 || !digits.bytes().all(|b| b.is_ascii_digit()) { Err(TargetFault::Port) } else { Ok(()) }
}

/// Underscores are no hostname characters, but names of services inside clusters have them.
fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= LABEL_BYTES_MAX
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether the old address parser would read the label as a number, in decimal, octal or hex.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").or_else(|| label.strip_prefix("0X"));
    label.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(url: &str) -> TargetFault {
        AddressPolicy::public_only().check_url(url).expect_err(url)
    }

    #[test]
    fn ordinary_targets_are_accepted_as_written() {
        for url in [
            "https://example.com/hooks/report?x=1&y=a@b",
            "http://example.com",
            "HTTPS://EXAMPLE.com:8443/",
            "http://example.com./",
            "http://my_service.example.com/",
            "http://xn--bcher-kva.example/",
            "http://8.8.8.8:80/",
            "http://[2606:4700:4700::1111]/",
            "http://[2606:4700:4700::1111]:8080/x",
            "http://[::ffff:8.8.8.8]/",
            "http://1.example.com/",
            "http://0x7f.example.com/",
            "http://notlocalhost/",
            "http://localhost.example.com/",
        ] {
            let uri =
                AddressPolicy::public_only().check_url(url).unwrap_or_else(|fault| panic!("{url}: {fault}"));
            assert!(uri.authority().is_some(), "{url}");
        }
    }

    #[test]
    fn literal_addresses_of_closed_networks_are_refused() {
        for host in [
            "127.0.0.1",
            "127.255.255.254",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:a9fe:a9fe]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[fd00::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
        ] {
            for url in [format!("http://{host}/"), format!("https://{host}:8443/x?y")] {
                let fault = fault(&url);
                assert!(matches!(fault, TargetFault::Address(_)), "{url}: {fault:?}");
                assert!(fault.to_string().contains("--allow-target"), "{fault}");
            }
        }
    }

    #[test]
    fn other_spellings_of_an_address_are_refused_even_where_the_address_is_open() {
        let open = AddressPolicy::public_only().allow_loopback();
        for host in [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "017700000001",
            "0x7f.1",
            "0177.1",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "127.0.0.01",
            "0x7f.0.0.0x1",
            "127.0.0.1.",
            "127.0.0.1.5",
            "0",
            "0x",
            "08.8.8.8",
            "256.1.1.1",
            "foo.1",
            "1.2.3",
        ] {
            let url = format!("http://{host}/");
            let fault = open.check_url(&url).expect_err(&url);
            assert_eq!(fault, TargetFault::AmbiguousAddress(host.to_owned()), "{url}");
        }
    }

    #[test]
    fn names_of_this_machine_count_as_loopback() {
        for host in ["localhost", "LOCALHOST", "localhost.", "a.localhost", "a.b.LocalHost."] {
            let url = format!("http://{host}:7400/");
            let fault = fault(&url);
            assert!(matches!(fault, TargetFault::Localhost(_)), "{url}: {fault:?}");
            assert!(fault.to_string().contains("--allow-target"), "{fault}");
            assert!(AddressPolicy::public_only().allow_loopback().check_url(&url).is_ok(), "{url}");
            let v6_only = AddressPolicy::public_only().allow("::1".parse().unwrap());
            assert!(v6_only.check_url(&url).is_ok(), "{url}");
        }
    }

    #[test]
    fn everything_else_wrong_with_a_url_is_named() {
        use TargetFault as F;
        for (url, expected) in [
            ("", F::Malformed),
            ("example.com/x", F::Malformed),
            ("//example.com/x", F::Malformed),
            ("http:example.com", F::Malformed),
            ("http:/example.com", F::Malformed),
            ("file:///etc/passwd", F::Scheme("file".to_owned())),
            ("gopher://example.com/", F::Scheme("gopher".to_owned())),
            ("javascript:alert(1)", F::Scheme("javascript".to_owned())),
            ("example.com:80/x", F::Scheme("example.com".to_owned())),
            ("http://user@example.com/", F::UserInfo),
            ("http://user:pass@example.com/", F::UserInfo),
            ("http://example.com:80@127.0.0.1/", F::UserInfo),
            ("http://@example.com/", F::UserInfo),
            ("http://a@b@c/", F::UserInfo),
            ("http://example.com/#top", F::Fragment),
            ("http://127.0.0.1#@example.com/", F::Fragment),
            ("http://127.0.0.1\\@example.com/", F::Character('\\')),
            ("http://exa mple.com/", F::Character(' ')),
            (" http://example.com/", F::Character(' ')),
            ("http://example.com/\r\nX: y", F::Character('\r')),
            ("http://example.com/\0", F::Character('\0')),
            ("http://bücher.example/", F::Character('ü')),
            ("http://127。0。0。1/", F::Character('。')),
            ("http://①②⑦.0.0.1/", F::Character('①')),
            ("http://example.com/ü", F::Character('ü')),
            ("http://example.com:0/", F::Port),
            ("http://example.com:65536/", F::Port),
            ("http://example.com:/", F::Port),
            ("http://example.com:+80/", F::Port),
            ("http:///path", F::Host(String::new())),
            ("http://", F::Host(String::new())),
            ("http://:80/", F::Host(String::new())),
            ("http://?x", F::Host(String::new())),
            ("http://./", F::Host(".".to_owned())),
            ("http://../", F::Host("..".to_owned())),
            ("http://a..b/", F::Host("a..b".to_owned())),
            ("http://.a/", F::Host(".a".to_owned())),
            ("http://a../", F::Host("a..".to_owned())),
            ("http://[::1/", F::Host("[::1".to_owned())),
            ("http://[fe80::1%25eth0]/", F::Host("[fe80::1%25eth0]".to_owned())),
            ("http://[127.0.0.1]/", F::Host("[127.0.0.1]".to_owned())),
            ("http://127%2e0.0.1/", F::Host("127%2e0.0.1".to_owned())),
            ("http://a,b/", F::Host("a,b".to_owned())),
        ] {
            assert_eq!(fault(url), expected, "{url:?}");
        }
    }

    #[test]
    fn lengths_are_bounded_at_the_byte() {
        let longest = format!("http://example.com/{}", "a".repeat(URL_BYTES_MAX - 19));
        assert_eq!(longest.len(), URL_BYTES_MAX);
        let policy = AddressPolicy::public_only();
        assert!(policy.check_url(&longest).is_ok());
        assert_eq!(fault(&format!("{longest}a")), TargetFault::TooLong { bytes: URL_BYTES_MAX + 1 });
        let label = "a".repeat(LABEL_BYTES_MAX);
        assert!(policy.check_url(&format!("http://{label}.com/")).is_ok());
        assert!(matches!(fault(&format!("http://{label}a.com/")), TargetFault::Host(_)));
        assert!(matches!(
            fault(&format!("http://{}com/", format!("{label}.").repeat(4))),
            TargetFault::Host(_)
        ));
    }

    #[test]
    fn methods_are_the_plain_ones() {
        assert_eq!(check_method("POST"), Ok(Method::POST));
        assert_eq!(check_method("DELETE"), Ok(Method::DELETE));
        for bad in ["CONNECT", "TRACE", "post", "", "GET /", "POST\r\n"] {
            assert!(check_method(bad).is_err(), "{bad:?}");
        }
    }
}
