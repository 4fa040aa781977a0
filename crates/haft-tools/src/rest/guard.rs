//! Decides which hosts and addresses a service's requests may reach, for every URL, redirect and resolved address.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use super::address::is_public;

/// The origins and addresses that requests may reach. Requests contain credentials, so an OpenAPI document must not be
/// able to redirect them to another port of a host, or to plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHosts {
    /// The allowed origins. The first one is the origin of the service.
    origins: Vec<WebOrigin>,
    private: PrivateAddressRule,
}

/// Scheme, host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
struct WebOrigin {
    scheme: String,
    /// The host in lower case, as in a parsed URL.
    host: String,
    port: u16,
}

impl WebOrigin {
    fn of(url: &Url) -> Option<Self> {
        let port = url.port_or_known_default()?;
        Some(Self { scheme: url.scheme().to_owned(), host: host(url)?, port })
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, port } = self;
        match (scheme.as_str(), port) {
            ("http", 80) | ("https", 443) => write!(f, "{scheme}://{host}"),
            _ => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

const HTTPS_PORT: u16 = 443;
const HTTP_PORT: u16 = 80;

/// The rule for addresses that are not public.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateAddressRule {
    Refused,
    /// Only loopback addresses, because the operator's URL names `localhost`.
    Loopback,
    /// Only this private address, because the operator's URL names it.
    Exactly(IpAddr),
    /// Any address, because the operator set `allowPrivateAddresses`.
    Allowed,
}

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestBlockReason {
    #[error("haft supports only http and https URLs; got `{0}`")]
    Scheme(String),
    #[error("a URL may not contain a user name or a password")]
    UserInfo,
    #[error("the URL has no host")]
    NoHost,
    #[error("requests are allowed only to {known}, not to {host}")]
    OtherHost { host: String, known: String },
    #[error("requests are allowed only to {known}, not to {origin}, because they may contain credentials")]
    OtherOrigin { origin: String, known: String },
    #[error(
        "{host} is at {address}, which is not a public address; \
                 the operator can allow it with `allowPrivateAddresses`"
    )]
    PrivateAddress { host: String, address: IpAddr },
    #[error("haft does not follow a redirect from https to http")]
    Downgrade,
    #[error("haft does not follow a redirect to another port")]
    OtherPort,
}

impl AllowedHosts {
    /// Allows the origin of a URL that the operator wrote. If the URL names a private address or `localhost`, that
    /// address is allowed too, because the operator chose it.
    pub fn named(url: &Url) -> Self {
        let private = match url.host() {
            Some(Host::Ipv4(address)) => literal(address.into()),
            Some(Host::Ipv6(address)) => literal(address.into()),
            Some(Host::Domain(name)) if is_localhost(name) => PrivateAddressRule::Loopback,
            Some(Host::Domain(_)) | None => PrivateAddressRule::Refused,
        };
        Self { origins: WebOrigin::of(url).into_iter().collect(), private }
    }

    /// Allows the origin of a URL from an OpenAPI document. The document alone cannot allow a private address.
    pub fn described(url: &Url) -> Self {
        Self { origins: WebOrigin::of(url).into_iter().collect(), private: PrivateAddressRule::Refused }
    }

    /// Allows further hosts: over HTTPS on the default port, or with the scheme and port of the service.
    #[must_use]
    pub fn with_hosts(mut self, hosts: &[String]) -> Self {
        let service = self.origins.first().cloned();
        for host in hosts.iter().map(|host| host.to_ascii_lowercase()) {
            let alike = service.clone().map(|service| WebOrigin { host: host.clone(), ..service });
            let https = WebOrigin { scheme: "https".into(), host, port: HTTPS_PORT };
            self.origins.extend(alike.filter(|alike| *alike != https));
            self.origins.push(https);
        }
        self
    }

    #[must_use]
    pub fn with_private(mut self, private: PrivateAddressRule) -> Self {
        self.private = private;
        self
    }

    pub fn has_origin(&self, url: &Url) -> bool {
        WebOrigin::of(url).is_some_and(|origin| self.origins.contains(&origin))
    }

    /// Checks a URL, before its host name is resolved.
    pub fn check_url(&self, url: &Url) -> Result<(), RequestBlockReason> {
        self.check_target(url)?;
        if self.has_origin(url) {
            return Ok(());
        }
        let origin = WebOrigin::of(url).map(|origin| origin.to_string()).unwrap_or_default();
        let same_host = self.origins.iter().filter(|known| Some(&known.host) == host(url).as_ref());
        let known: Vec<String> = same_host.map(ToString::to_string).collect();
        Err(RequestBlockReason::OtherOrigin { origin, known: known.join(", ") })
    }

    /// Checks a URL except for its scheme and port, which a redirect from http to https may change.
    fn check_target(&self, url: &Url) -> Result<(), RequestBlockReason> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(RequestBlockReason::Scheme(url.scheme().to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RequestBlockReason::UserInfo);
        }
        let Some(named) = url.host() else { return Err(RequestBlockReason::NoHost) };
        self.check_host(&named.to_string())?;
        match named {
            Host::Ipv4(address) => self.check_address(&named.to_string(), address.into()),
            Host::Ipv6(address) => self.check_address(&named.to_string(), address.into()),
            Host::Domain(_) => Ok(()),
        }
    }

    pub fn check_host(&self, host: &str) -> Result<(), RequestBlockReason> {
        if self.origins.iter().any(|known| known.host == host) {
            return Ok(());
        }
        let mut known: Vec<&str> = self.origins.iter().map(|origin| origin.host.as_str()).collect();
        known.dedup();
        Err(RequestBlockReason::OtherHost { host: host.to_owned(), known: known.join(", ") })
    }

    /// Checks an address directly before the connection. haft resolves a host name only once, and `address` is the
    /// result.
    pub fn check_address(&self, host: &str, address: IpAddr) -> Result<(), RequestBlockReason> {
        let canonical = address.to_canonical();
        let allowed = match self.private {
            PrivateAddressRule::Allowed => true,
            PrivateAddressRule::Refused => false,
            PrivateAddressRule::Loopback => canonical.is_loopback(),
            PrivateAddressRule::Exactly(named) => canonical == named.to_canonical(),
        };
        if allowed || is_public(address) {
            return Ok(());
        }
        Err(RequestBlockReason::PrivateAddress { host: host.to_owned(), address })
    }

    /// Checks a redirect: it must keep host and port, or upgrade from http to https, both on their default ports. A
    /// downgrade to http is refused.
    pub fn check_redirect(&self, from: &Url, to: &Url) -> Result<(), RequestBlockReason> {
        self.check_target(to)?;
        if host(from) != host(to) {
            let host = to.host_str().unwrap_or_default().to_owned();
            return Err(RequestBlockReason::OtherHost {
                host,
                known: from.host_str().unwrap_or_default().to_owned(),
            });
        }
        let ports = (from.port_or_known_default(), to.port_or_known_default());
        match (from.scheme(), to.scheme()) {
            ("https", "http") => Err(RequestBlockReason::Downgrade),
            ("http", "https") if ports == (Some(HTTP_PORT), Some(HTTPS_PORT)) => Ok(()),
            _ if ports.0 == ports.1 => Ok(()),
            _ => Err(RequestBlockReason::OtherPort),
        }
    }
}

fn literal(address: IpAddr) -> PrivateAddressRule {
    if is_public(address) { PrivateAddressRule::Refused } else { PrivateAddressRule::Exactly(address) }
}

fn host(url: &Url) -> Option<String> {
    url.host().map(|host| host.to_string())
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn private_address_is_allowed_only_if_configured() {
        let check = |named: &str, address: &str, expected: bool| {
            let reach = AllowedHosts::named(&url(named));
            let found = reach.check_address("h", address.parse().unwrap()).is_ok();
            assert_eq!(found, expected, "{named} {address}");
        };
        check("https://api.example.com", "93.184.216.34", true);
        check("https://api.example.com", "127.0.0.1", false);
        check("https://api.example.com", "169.254.169.254", false);
        check("https://api.example.com", "::ffff:10.0.0.1", false);
        check("http://localhost:8000", "127.0.0.1", true);
        check("http://localhost:8000", "::1", true);
        check("http://localhost:8000", "10.0.0.1", false);
        check("http://10.0.0.1", "10.0.0.1", true);
        check("http://10.0.0.1", "::ffff:10.0.0.1", true);
        check("http://10.0.0.1", "10.0.0.2", false);
    }

    #[test]
    fn private_address_from_a_document_is_refused_by_default() {
        let reach = AllowedHosts::described(&url("http://127.0.0.1/"));
        assert!(reach.check_url(&url("http://127.0.0.1/")).is_err());
        let reach = reach.with_private(PrivateAddressRule::Allowed);
        assert!(reach.check_url(&url("http://127.0.0.1/")).is_ok());
    }

    #[test]
    fn url_to_another_host_is_refused_in_every_notation() {
        let reach = AllowedHosts::named(&url("https://api.example.com"));
        for bad in [
            "ftp://api.example.com/",
            "https://u:p@api.example.com/",
            "https://api.example.com@127.0.0.1/",
            "https://evil.com/",
            "http://2130706433/",
            "http://0/",
            "http://[::ffff:127.0.0.1]/",
            "http://0x7f.1/",
            "gopher://api.example.com/",
        ] {
            assert!(reach.check_url(&url(bad)).is_err(), "{bad}");
        }
        assert!(reach.check_url(&url("https://API.example.com/x")).is_ok());
    }

    #[test]
    fn credentials_are_not_sent_to_another_origin() {
        let check = |named: &str, hosts: &[&str], to: &str, expected: Result<(), &str>| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            let reach = AllowedHosts::named(&url(named)).with_hosts(&hosts);
            let found = reach.check_url(&url(to)).map_err(|refusal| refusal.to_string());
            assert_eq!(found, expected.map_err(str::to_owned), "{named} {to}");
        };
        let end = "because they may contain credentials";
        check("https://a.com:1", &[], "https://a.com:1/x", Ok(()));
        let other = format!("requests are allowed only to https://a.com:1, not to http://a.com:2, {end}");
        check("https://a.com:1", &[], "http://a.com:2/x", Err(&other));
        let plain = format!("requests are allowed only to https://a.com, not to http://a.com, {end}");
        check("https://a.com", &[], "http://a.com/x", Err(&plain));
        check("https://a.com", &["b.com"], "https://b.com/x", Ok(()));
        check("http://a.com:8000", &["b.com"], "http://b.com:8000/x", Ok(()));
        let plain = format!("requests are allowed only to https://b.com, not to http://b.com, {end}");
        check("https://a.com", &["b.com"], "http://b.com/x", Err(&plain));
    }

    #[test]
    fn redirect_to_another_host_port_or_plain_http_is_refused() {
        let reach = AllowedHosts::named(&url("https://a.com")).with_hosts(&["b.com".into()]);
        let check = |from: &str, to: &str, expected: bool| {
            assert_eq!(reach.check_redirect(&url(from), &url(to)).is_ok(), expected, "{from} {to}");
        };
        check("https://a.com/x", "https://a.com/y", true);
        check("http://a.com/x", "https://a.com/x", true);
        check("https://a.com/x", "http://a.com/x", false);
        check("https://a.com/x", "https://b.com/x", false);
        check("https://a.com/x", "https://a.com:444/x", false);
        check("http://a.com/x", "https://a.com:444/x", false);
        check("http://a.com:8080/x", "https://a.com/x", false);
        check("http://a.com:8080/x", "https://a.com:8080/x", true);
        check("https://a.com/x", "http://169.254.169.254/", false);
    }
}
