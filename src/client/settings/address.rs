//! An address of a broker, as people write it.
//!
//! Pure. Owns [`HostPort`] and its spelling. Always: the port is not 0; a host has no brackets.

/// The port of a bootstrap server that names none.
const DEFAULT_PORT: u16 = 9092;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// 1 and more.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port`, `host`, `[::1]:port`, with or without `PLAINTEXT://` before it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("{text:?} is no host:port: {why}"));
        let text = text.trim();
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("plaintext") => rest,
            Some(_) => return wrong("write it without ://"),
            None => text,
        };
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, after)) => (host, after.strip_prefix(':').or(after.is_empty().then_some(""))),
            None if rest.matches(':').count() > 1 => return wrong("put an IPv6 address in brackets"),
            None => rest.split_once(':').map_or((rest, Some("")), |(host, port)| (host, Some(port))),
        };
        if host.is_empty() || host.contains(|letter: char| letter.is_whitespace() || letter == '/') {
            return wrong("the host is missing or has blanks or slashes in it");
        }
        let port = match port {
            Some("") if !rest.ends_with(':') => Ok(DEFAULT_PORT),
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(()),
            None => Err(()),
        };
        let Ok(port) = port else { return wrong("the port is a number from 1 to 65535") };
        Ok(Self { host: host.to_owned(), port })
    }
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let read = |text: &str| HostPort::parse(text).map(|address| address.to_string());
        assert_eq!(read("h").as_deref(), Ok("h:9092"));
        assert_eq!(read(" PLAINTEXT://h:1 ").as_deref(), Ok("h:1"));
        assert_eq!(read("[::1]").as_deref(), Ok("[::1]:9092"));
        for bad in ["", ":1", "h:", "h:0", "h:70000", "::1", "http://h:1", "h:1/x", "[::1]x", "a b:1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
