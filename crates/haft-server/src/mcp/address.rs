//! The names and URIs under which a client sees the prompts and resources of upstream servers.

use haft_core::naming::NamingScheme;

/// The prefix of a URI that includes its upstream server. The server name, `/`, and the server's own URI follow it.
const SCHEME: &str = "haft:";

/// The prefix of the URI of a stored output.
const STORED_SCHEME: &str = "haft-output:";

/// Translates between the names that upstream servers use and the names that a client sees.
#[derive(Debug, Clone)]
pub(super) struct UpstreamAddresses {
    scheme: NamingScheme,
    namespaces: Vec<String>,
}

/// The server that a name or URI belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressOwner<'a> {
    /// The index of the server, and the name or URI that the server uses.
    Server(usize, &'a str),
    /// The naming scheme adds no server name, so the owner is found by searching the lists of all servers.
    Any(&'a str),
    Unknown,
}

impl UpstreamAddresses {
    pub(super) fn new(scheme: NamingScheme, namespaces: Vec<String>) -> Self {
        Self { scheme, namespaces }
    }

    /// Returns true if names and URIs are passed unchanged.
    pub(super) fn is_bare(&self) -> bool {
        self.scheme == NamingScheme::Bare
    }

    pub(super) fn position(&self, namespace: &str) -> Option<usize> {
        self.namespaces.iter().position(|known| known == namespace)
    }

    /// Returns the URI, or the URI template, that the client sees.
    pub(super) fn uri(&self, server: usize, own: &str) -> String {
        if self.is_bare() { own.to_owned() } else { format!("{SCHEME}{}/{own}", self.namespaces[server]) }
    }

    pub(super) fn uri_owner<'a>(&self, uri: &'a str) -> AddressOwner<'a> {
        if self.is_bare() {
            return AddressOwner::Any(uri);
        }
        let parts = uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/'));
        let found = parts.and_then(|(namespace, own)| Some((self.position(namespace)?, own)));
        found.map_or(AddressOwner::Unknown, |(server, own)| AddressOwner::Server(server, own))
    }

    /// Returns the prompt name that the client sees.
    pub(super) fn prompt(&self, server: usize, own: &str) -> String {
        format!("{}{own}", self.prompt_prefix(server))
    }

    /// Returns the server of a prompt. The longest prefix is used, because one server may be named `a` and another
    /// `a__b`.
    pub(super) fn prompt_owner<'a>(&self, name: &'a str) -> AddressOwner<'a> {
        if self.is_bare() {
            return AddressOwner::Any(name);
        }
        let matching = |server: usize| Some((server, name.strip_prefix(&self.prompt_prefix(server))?));
        let found = (0..self.namespaces.len()).filter_map(matching).min_by_key(|(_, own)| own.len());
        found.map_or(AddressOwner::Unknown, |(server, own)| AddressOwner::Server(server, own))
    }

    fn prompt_prefix(&self, server: usize) -> String {
        let namespace = &self.namespaces[server];
        match self.scheme {
            NamingScheme::Double => format!("{namespace}__"),
            NamingScheme::Claude => format!("mcp__{namespace}__"),
            NamingScheme::Single => format!("{namespace}_"),
            NamingScheme::Bare => String::new(),
        }
    }
}

/// Returns the URI of a stored output.
pub(super) fn stored_uri(handle: &str) -> String {
    format!("{STORED_SCHEME}{handle}")
}

/// Returns the handle in the URI of a stored output.
pub(super) fn stored_handle(uri: &str) -> Option<&str> {
    uri.strip_prefix(STORED_SCHEME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(scheme: NamingScheme) -> UpstreamAddresses {
        UpstreamAddresses::new(scheme, ["up", "up__x", "other"].map(str::to_owned).into())
    }

    #[test]
    fn every_prompt_name_and_uri_leads_back_to_its_server() {
        for scheme in NamingScheme::ALL {
            let all = addresses(scheme);
            for (server, own) in
                [(0, "file:///a?b#c"), (1, "x"), (2, "haft:up/x"), (0, "t://{id}/data"), (0, "")]
            {
                let (uri, prompt) = (all.uri(server, own), all.prompt(server, own));
                let expected =
                    if all.is_bare() { AddressOwner::Any(own) } else { AddressOwner::Server(server, own) };
                assert_eq!(all.uri_owner(&uri), expected, "{uri}");
                assert_eq!(all.prompt_owner(&prompt), expected, "{prompt}");
            }
        }
    }

    #[test]
    fn unknown_uri_or_prompt_name_belongs_to_no_server() {
        let all = addresses(NamingScheme::Double);
        for uri in ["", "haft:", "haft:up", "haft:none/x", "file:///etc/passwd", "haft-output:x"] {
            assert_eq!(all.uri_owner(uri), AddressOwner::Unknown, "{uri}");
        }
        assert_eq!(all.prompt_owner("none__x"), AddressOwner::Unknown);
        assert_eq!(all.prompt_owner("up_x"), AddressOwner::Unknown);
    }
}
