//! Which IP addresses a push may connect to.
//!
//! A target is chosen by whoever submits the job, and the request leaves from inside the operator's network: without this
//! check a job could read the cloud's metadata service or a neighbour's database. The rule is one function of one
//! address, [`AddressPolicy::check`]; URLs are judged in `target`, resolved names in `connector`, both by asking it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// IPv4 ranges that are not the public internet, each with what it is.
const REFUSED_V4: [(Ipv4Addr, u8, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an unspecified address"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a carrier-grade NAT address"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud platform's own service"),
    (Ipv4Addr::new(169, 254, 169, 254), 32, "the cloud metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a protocol-assignment address"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a documentation address"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay address"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a benchmarking address"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a documentation address"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a documentation address"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved or broadcast address"),
];

/// IPv6 ranges with a name worth telling. The first match is the reason given, so narrow ones come first.
const REFUSED_V6: [(Ipv6Addr, u8, &str); 15] = [
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified address"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::UNSPECIFIED, 96, "an IPv4-compatible address"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "a NAT64 address"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "a local NAT64 address"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "a discard address"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "a Teredo address"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a protocol-assignment address"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a documentation address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a documentation address"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 address"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a unique local address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a site-local address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
];

/// The only IPv6 block handed out for the public internet; whatever lies outside it is refused even without a name.
const GLOBAL_UNICAST_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// A range of addresses, such as `10.0.0.0/8`, `::1/128` or the single address `10.1.2.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    network: IpAddr,
    prefix_bits: u8,
}

/// Why a text is not a [`Cidr`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CidrFault {
    /// The part before the slash is no IP address.
    #[error("`{0}` is not an IP address range; write one like 10.0.0.0/8, ::1/128 or 10.1.2.3")]
    Address(String),
    /// The part after the slash is no prefix length for this kind of address.
    #[error("`{text}` has no valid prefix length; it is a number from 0 to {max}")]
    Prefix {
        /// What was given.
        text: String,
        /// The longest prefix this kind of address has.
        max: u8,
    },
    /// Bits past the prefix are set, so the text could mean one address or the whole range.
    #[error("`{text}` has address bits past its prefix; write {network} for the range, or the address alone")]
    HostBits {
        /// What was given.
        text: String,
        /// The range it lies in.
        network: Cidr,
    },
    /// An IPv4 range in IPv6 clothes; addresses are compared in their IPv4 form, so it would never match.
    #[error("`{0}` is an IPv4-mapped range; write it as IPv4")]
    Mapped(String),
}

impl Cidr {
    /// Whether the address lies in the range. An IPv4-mapped IPv6 address counts as the IPv4 address it reaches.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => in_v4(address, network, self.prefix_bits),
            (IpAddr::V6(network), IpAddr::V6(address)) => in_v6(address, network, self.prefix_bits),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrFault;

    fn from_str(text: &str) -> Result<Self, CidrFault> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| CidrFault::Address(text.to_owned()))?;
        if address.to_canonical() != address {
            return Err(CidrFault::Mapped(text.to_owned()));
        }
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => max,
            // `u8::from_str` takes a leading plus sign, which no other tool would.
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
                .parse::<u8>()
                .ok()
                .filter(|bits| *bits <= max)
                .ok_or_else(|| CidrFault::Prefix { text: text.to_owned(), max })?,
            Some(_) => return Err(CidrFault::Prefix { text: text.to_owned(), max }),
        };
        let network = match address {
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask_v4(prefix_bits))),
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask_v6(prefix_bits))),
        };
        let range = Self { network, prefix_bits };
        if network == address {
            Ok(range)
        } else {
            Err(CidrFault::HostBits { text: text.to_owned(), network: range })
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_bits)
    }
}

/// An address no push may reach, with the reason. The remedy is in its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {reason}; the operator can open it with `--allow-target {address}`")]
pub struct RefusedAddress {
    /// The address, in the form it was compared in.
    pub address: IpAddr,
    /// What the address is, as the end of a sentence.
    pub reason: &'static str,
}

/// Which addresses may be connected to: the public internet, and the ranges the operator opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressPolicy {
    allowed: Vec<Cidr>,
}

impl AddressPolicy {
    /// Only the public internet: no loopback, private, link-local, metadata, reserved or tunnelled address.
    #[must_use]
    pub fn public_only() -> Self {
        Self::default()
    }

    /// Opens one more range. It wins over every refusal, the metadata service included, so keep it narrow.
    #[must_use]
    pub fn allow(mut self, range: Cidr) -> Self {
        self.allowed.push(range);
        self
    }

    /// Opens 127.0.0.0/8 and ::1.
    #[must_use]
    pub fn allow_loopback(self) -> Self {
        self.allow(Cidr { network: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix_bits: 8 })
            .allow(Cidr { network: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 })
    }

    /// Judges one address.
    ///
    /// # Errors
    /// [`RefusedAddress`] when it is neither public nor opened.
    pub fn check(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let address = address.to_canonical();
        if self.allowed.iter().any(|range| range.contains(address)) {
            return Ok(());
        }
        let reason = match address {
            IpAddr::V4(v4) => reason_v4(v4),
            IpAddr::V6(v6) => reason_v6(v6),
        };
        reason.map_or(Ok(()), |reason| Err(RefusedAddress { address, reason }))
    }
}

fn reason_v4(address: Ipv4Addr) -> Option<&'static str> {
    REFUSED_V4.iter().find(|(network, bits, _)| in_v4(address, *network, *bits)).map(|(_, _, reason)| *reason)
}

fn reason_v6(address: Ipv6Addr) -> Option<&'static str> {
    let named = REFUSED_V6
        .iter()
        .find(|(network, bits, _)| in_v6(address, *network, *bits))
        .map(|(_, _, reason)| *reason);
    let (global, bits) = GLOBAL_UNICAST_V6;
    named.or_else(|| (!in_v6(address, global, bits)).then_some("outside the public IPv6 range"))
}

fn in_v4(address: Ipv4Addr, network: Ipv4Addr, prefix_bits: u8) -> bool {
    (address.to_bits() ^ network.to_bits()) & mask_v4(prefix_bits) == 0
}

fn in_v6(address: Ipv6Addr, network: Ipv6Addr, prefix_bits: u8) -> bool {
    (address.to_bits() ^ network.to_bits()) & mask_v6(prefix_bits) == 0
}

/// A shift by the full width is undefined for integers, and is exactly what a prefix of 0 asks for.
fn mask_v4(prefix_bits: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(prefix_bits.into())).unwrap_or(0)
}

fn mask_v6(prefix_bits: u8) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(prefix_bits.into())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn first_and_last_address_of_every_range_is_refused_and_its_neighbours_are_not() {
        let policy = AddressPolicy::public_only();
        for (first, last) in [
            ("0.0.0.0", "0.255.255.255"),
            ("10.0.0.0", "10.255.255.255"),
            ("100.64.0.0", "100.127.255.255"),
            ("127.0.0.0", "127.255.255.255"),
            ("168.63.129.16", "168.63.129.16"),
            ("169.254.0.0", "169.254.255.255"),
            ("172.16.0.0", "172.31.255.255"),
            ("192.0.0.0", "192.0.0.255"),
            ("192.0.2.0", "192.0.2.255"),
            ("192.88.99.0", "192.88.99.255"),
            ("192.168.0.0", "192.168.255.255"),
            ("198.18.0.0", "198.19.255.255"),
            ("198.51.100.0", "198.51.100.255"),
            ("203.0.113.0", "203.0.113.255"),
            ("224.0.0.0", "255.255.255.255"),
        ] {
            let (first, last): (Ipv4Addr, Ipv4Addr) = (first.parse().unwrap(), last.parse().unwrap());
            assert!(policy.check(first.into()).is_err(), "{first}");
            assert!(policy.check(last.into()).is_err(), "{last}");
            assert!(policy.check(first.to_ipv6_mapped().into()).is_err(), "mapped {first}");
            assert!(policy.check(last.to_ipv6_mapped().into()).is_err(), "mapped {last}");
            for neighbour in
                [first.to_bits().checked_sub(1), last.to_bits().checked_add(1)].into_iter().flatten()
            {
                let neighbour = Ipv4Addr::from_bits(neighbour);
                assert_eq!(policy.check(neighbour.into()), Ok(()), "{neighbour}");
            }
        }
    }

    #[test]
    fn the_ipv6_zoo_is_refused() {
        let policy = AddressPolicy::public_only();
        for (address, reason) in [
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::127.0.0.1", "IPv4-compatible"),
            ("::10.0.0.1", "IPv4-compatible"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:169.254.169.254", "metadata"),
            ("::ffff:7f00:1", "loopback"),
            ("64:ff9b::7f00:1", "NAT64"),
            ("64:ff9b::8.8.8.8", "NAT64"),
            ("64:ff9b:1::1", "local NAT64"),
            ("100::1", "discard"),
            ("2001::1", "Teredo"),
            ("2001:2::1", "protocol-assignment"),
            ("2001:db8::1", "documentation"),
            ("3fff::1", "documentation"),
            ("2002:7f00:1::1", "6to4"),
            ("fc00::1", "unique local"),
            ("fd00:ec2::254", "unique local"),
            ("fe80::1", "link-local"),
            ("febf:ffff::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("4000::1", "outside"),
            ("5f00::1", "outside"),
            ("::ffff:0:127.0.0.1", "outside"),
            ("1fff:ffff::1", "outside"),
        ] {
            let refused = policy.check(ip(address)).expect_err(address);
            assert!(refused.reason.contains(reason), "{address}: {}", refused.reason);
        }
        for public in ["2606:4700:4700::1111", "2a00:1450:4001::1", "2001:4860:4860::8888", "::ffff:8.8.8.8"]
        {
            assert_eq!(policy.check(ip(public)), Ok(()), "{public}");
        }
    }

    #[test]
    fn an_opened_range_opens_itself_and_nothing_beside_it() {
        let policy = AddressPolicy::public_only().allow(cidr("10.1.2.0/24")).allow(cidr("fd00:1::/32"));
        for open in ["10.1.2.0", "10.1.2.255", "::ffff:10.1.2.3", "fd00:1:ffff::1"] {
            assert_eq!(policy.check(ip(open)), Ok(()), "{open}");
        }
        for shut in ["10.1.1.255", "10.1.3.0", "127.0.0.1", "fd00:2::1", "::10.1.2.3", "64:ff9b::a01:203"] {
            assert!(policy.check(ip(shut)).is_err(), "{shut}");
        }
        let loopback = AddressPolicy::public_only().allow_loopback();
        assert_eq!(loopback.check(ip("127.9.9.9")), Ok(()));
        assert_eq!(loopback.check(ip("::1")), Ok(()));
        assert!(loopback.check(ip("::2")).is_err());
        assert!(loopback.check(ip("169.254.169.254")).is_err());
    }

    #[test]
    fn ranges_are_read_and_printed() {
        for (text, printed) in [
            ("127.0.0.0/8", "127.0.0.0/8"),
            ("::1/128", "::1/128"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("fe80::1", "fe80::1/128"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(cidr(text).to_string(), printed);
        }
        assert!(cidr("0.0.0.0/0").contains(ip("255.255.255.255")));
        assert!(!cidr("0.0.0.0/0").contains(ip("::1")));
        assert!(cidr("::/0").contains(ip("ffff::1")));
    }

    #[test]
    fn a_range_that_could_be_misread_is_refused() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "10/8",
            "localhost",
            "010.0.0.0/8",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        let fault = "10.1.2.3/8".parse::<Cidr>().expect_err("host bits are set");
        assert!(fault.to_string().contains("write 10.0.0.0/8"), "{fault}");
    }
}
