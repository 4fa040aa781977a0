//! What is asked for: no more than was named, and never less than was there.

use super::challenge::Challenge;

/// With it, a server gives tokens that can be renewed while nobody is there.
const OFFLINE: &str = "offline_access";

/// Everything that has a say.
#[derive(Debug, Default)]
pub(super) struct Asked<'a> {
    pub(super) challenge: Option<&'a Challenge>,
    /// What was asked for before; more is added to it, nothing is lost.
    pub(super) before: &'a [String],
    pub(super) operator: &'a [String],
    /// What the protected server says it knows.
    pub(super) resource: &'a [String],
    /// What the authorization server says it knows.
    pub(super) issuer: &'a [String],
}

impl Asked<'_> {
    /// The challenge counts; without one the operator; without either, what the server lists. Nothing is a good answer too.
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
    fn what_is_asked_for_comes_from_whoever_knows_best() {
        let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let check =
            |challenge: &str, before: &str, operator: &str, resource: &str, issuer, expected: &str| {
                let scope = Some(challenge).filter(|scope| !scope.is_empty()).map(str::to_owned);
                let challenge = Challenge { scope, ..Challenge::default() };
                let (before, operator, resource, issuer) =
                    (list(before), list(operator), list(resource), list(issuer));
                let asked = Asked {
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
