//! Chooses the scopes to request: only scopes that one of the sources names, and never fewer than in an earlier
//! request.

use super::challenge::Challenge;

/// The scope that requests a refresh token. With a refresh token, renewal needs no user.
const OFFLINE: &str = "offline_access";

/// The sources from which the requested scopes are chosen.
#[derive(Debug, Default)]
pub(super) struct ScopeSources<'a> {
    pub(super) challenge: Option<&'a Challenge>,
    /// The scopes of earlier requests. haft requests them again, so that a demand for more scopes does not remove any.
    pub(super) before: &'a [String],
    pub(super) operator: &'a [String],
    /// The scopes that the MCP server lists.
    pub(super) resource: &'a [String],
    /// The scopes that the authorization server lists.
    pub(super) issuer: &'a [String],
}

impl ScopeSources<'_> {
    /// Merges the scopes without duplicates. The list of the MCP server is used only if neither the challenge nor the
    /// operator names a scope. The result may be empty.
    pub(super) fn scopes(&self) -> Vec<String> {
        let challenged: Vec<String> = self
            .challenge
            .and_then(|challenge| challenge.scope.as_deref())
            .map(|scope| scope.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        let fallback = if challenged.is_empty() && self.operator.is_empty() { self.resource } else { &[] };
        let offline = self.issuer.iter().filter(|scope| *scope == OFFLINE);
        let mut scopes = Vec::new();
        for scope in self.before.iter().chain(&challenged).chain(self.operator).chain(fallback).chain(offline)
        {
            if !scopes.contains(scope) {
                scopes.push(scope.clone());
            }
        }
        scopes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_scopes_include_earlier_scopes_and_default_to_those_of_the_mcp_server() {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let check =
            |challenge: &str, before: &str, operator: &str, resource: &str, issuer, expected: &str| {
                let scope = Some(challenge).filter(|scope| !scope.is_empty()).map(str::to_owned);
                let challenge = Challenge { scope, ..Challenge::default() };
                let (before, operator, resource, issuer) =
                    (list(before), list(operator), list(resource), list(issuer));
                let asked = ScopeSources {
                    challenge: Some(&challenge),
                    before: &before,
                    operator: &operator,
                    resource: &resource,
                    issuer: &issuer,
                };
                assert_eq!(asked.scopes().join(" "), expected);
            };
        check("", "", "", "", "", "");
        check("", "", "", "a b", "a b c", "a b");
        check("w", "", "", "a b", "", "w");
        check("w", "r", "", "a b", "", "r w");
        check("", "", "o", "a b", "", "o");
        check("w w", "w", "w", "", "", "w");
        check("w", "", "", "", "w offline_access", "w offline_access");
    }
}
