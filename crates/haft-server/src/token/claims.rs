//! Determines the principal and the permissions of a token. The signature was already checked.

use haft_config::resolved::{TokenIssuerSettings, TokenTenant};
use haft_core::digest::Digest;
use haft_core::principal::Principal;
use haft_core::settings::server::{KeyLimits, KeyScope};
use serde_json::{Map, Value};

use super::TokenError;

/// The tolerated difference between the clocks of the issuer and the server, in seconds.
const SKEW_S: u64 = 60;

/// The maximum length of a tenant or subject name, in characters.
const NAME_CHARS_MAX: usize = 256;

/// The prefix of credential ids that stand for tokens.
pub(crate) const CREDENTIAL_PREFIX: &str = "jwt_";

/// The number of hexadecimal digits in the credential id of a subject.
const CREDENTIAL_DIGITS: usize = 32;

/// The two claims that issuers use for scopes.
const SCOPE_CLAIMS: [&str; 2] = ["scope", "scp"];

/// The caller behind a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSubject {
    pub(crate) principal: Principal,
    pub(crate) scopes: Vec<KeyScope>,
    pub(crate) limits: KeyLimits,
    /// The time at which the token expires, including the tolerated clock difference, in milliseconds since 1970.
    pub(crate) expires_ms: u64,
}

/// The values with which the claims are compared.
pub(super) struct TokenCheck<'a> {
    pub(super) issuer: &'a TokenIssuerSettings,
    /// An audience that the server accepts in addition to the configured audiences.
    pub(super) resource: Option<&'a str>,
    pub(super) now_s: u64,
}

impl TokenCheck<'_> {
    pub(super) fn subject(&self, claims: Map<String, Value>) -> Result<TokenSubject, TokenError> {
        let claims = Claims(claims);
        if claims.text("iss") != Some(&self.issuer.issuer) {
            return Err(TokenError::invalid(
                "the access token names another issuer than the issuer of its key",
            ));
        }
        let expires_s = self.check_times(&claims)?;
        self.check_audience(&claims)?;
        let subject = claims.name(&self.issuer.subject_claim)?;
        let tenant = match &self.issuer.tenant {
            TokenTenant::Fixed(tenant) => tenant.as_str(),
            TokenTenant::Claim(claim) => claims.name(claim)?,
        };
        if !Principal::is_tenant_name(tenant) {
            return Err(TokenError::invalid(
                "the access token names a tenant with `/`, which no tenant may have",
            ));
        }
        if tenant == Principal::local().tenant() {
            // This tenant owns the sessions of the local user, so no issuer may grant access to it.
            return Err(TokenError::invalid(
                "the access token names the tenant of the local user, which no token may use",
            ));
        }
        // The credential must stay the same when the client gets a new token, because sessions and limits belong to it.
        let mut credential =
            Digest::of_text(&format!("{}\n{tenant}\n{subject}", self.issuer.issuer)).to_string();
        credential.truncate(CREDENTIAL_DIGITS);
        let credential = format!("{CREDENTIAL_PREFIX}{credential}");
        Ok(TokenSubject {
            principal: Principal::new(tenant, subject, credential),
            scopes: self.scopes(&claims),
            limits: self.issuer.limits,
            expires_ms: expires_s.saturating_mul(1000),
        })
    }

    /// Returns the time at which the token expires, in seconds since 1970.
    fn check_times(&self, claims: &Claims) -> Result<u64, TokenError> {
        let expires = claims.seconds("exp")?;
        let expires = expires.ok_or_else(|| TokenError::invalid("the access token has no claim `exp`"))?;
        let expires = expires.saturating_add(SKEW_S);
        if self.now_s >= expires {
            return Err(TokenError::invalid("the access token has expired"));
        }
        if claims.seconds("nbf")?.is_some_and(|begins| begins > self.now_s.saturating_add(SKEW_S)) {
            return Err(TokenError::invalid("the access token is not valid yet (claim `nbf`)"));
        }
        Ok(expires)
    }

    fn check_audience(&self, claims: &Claims) -> Result<(), TokenError> {
        let accepted = self.issuer.audience.iter().map(String::as_str).chain(self.resource);
        let accepted: Vec<&str> = accepted.map(without_slash).filter(|name| !name.is_empty()).collect();
        let written = claims.list("aud");
        if written.into_iter().any(|name| accepted.contains(&without_slash(name))) {
            return Ok(());
        }
        Err(TokenError::invalid("the access token is not meant for this server (claim `aud`)"))
    }

    /// Returns the scopes of a token. Scopes and roles that the configuration does not map permit nothing.
    fn scopes(&self, claims: &Claims) -> Vec<KeyScope> {
        let granted = SCOPE_CLAIMS.iter().flat_map(|claim| claims.words(claim));
        let granted = granted.filter_map(|name| self.issuer.scopes.get(name));
        let by_role = claims.list(&self.issuer.roles_claim);
        let by_role = by_role.into_iter().filter_map(|name| self.issuer.roles.get(name));
        let mut scopes: Vec<KeyScope> = granted.chain(by_role).flatten().copied().collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }
}

/// Removes a slash at the end, because a server URL means the same with and without it.
fn without_slash(name: &str) -> &str {
    name.trim_end_matches('/')
}

struct Claims(Map<String, Value>);

impl Claims {
    /// Finds a claim by its full name, or as `outer.inner`. The full name comes first, because claim names can be URLs,
    /// which contain dots.
    fn get(&self, name: &str) -> Option<&Value> {
        let nested = || {
            let (outer, inner) = name.split_once('.')?;
            self.0.get(outer)?.get(inner)
        };
        self.0.get(name).or_else(nested)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.as_str()
    }

    /// Returns the tenant or subject in a claim, which must not be missing.
    fn name(&self, claim: &str) -> Result<&str, TokenError> {
        let name = self.text(claim).filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| TokenError::invalid(format!("the access token has no claim `{claim}`")))?;
        if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return Err(TokenError::invalid(format!(
                "the claim `{claim}` has control characters or more than {NAME_CHARS_MAX} characters"
            )));
        }
        Ok(name)
    }

    /// Returns a time in seconds; an error if the claim is not a number.
    fn seconds(&self, claim: &str) -> Result<Option<u64>, TokenError> {
        let Some(value) = self.get(claim) else { return Ok(None) };
        let wrong =
            || TokenError::invalid(format!("the claim `{claim}` is not a time in seconds since 1970"));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast from f64 saturates, and a time before 1970 is 0"
        )]
        let seconds = value.as_f64().map(|seconds| seconds as u64);
        seconds.map(Some).ok_or_else(wrong)
    }

    /// Returns the strings of a list, or a single string as a list.
    fn list(&self, claim: &str) -> Vec<&str> {
        match self.get(claim) {
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(text)) => vec![text],
            _ => Vec::new(),
        }
    }

    /// Returns the words of a string, or of a list of strings.
    fn words(&self, claim: &str) -> Vec<&str> {
        self.list(claim).into_iter().flat_map(str::split_ascii_whitespace).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    const NOW_S: u64 = 1_000_000;

    fn issuer() -> TokenIssuerSettings {
        let scope = |name: &str, scopes: &[KeyScope]| BTreeMap::from([(name.to_owned(), scopes.to_vec())]);
        TokenIssuerSettings {
            issuer: "https://login.example".into(),
            audience: vec!["haft".into()],
            jwks_url: None,
            tenant: TokenTenant::Claim("org".into()),
            subject_claim: "sub".into(),
            scopes: scope("haft", &[KeyScope::Api]),
            roles: scope("operator", &[KeyScope::Api, KeyScope::Admin]),
            roles_claim: "realm.roles".into(),
            limits: KeyLimits::default(),
        }
    }

    /// Returns the subject of valid claims after these changes; `null` removes a claim.
    fn subject(changes: &Value) -> Result<TokenSubject, TokenError> {
        let mut claims = json!({
            "iss": "https://login.example", "aud": "haft", "sub": "anna", "org": "acme", "exp": NOW_S + 10,
            "scope": "openid haft",
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let claims = claims.as_object().unwrap().clone().into_iter().filter(|(_, value)| !value.is_null());
        let issuer = issuer();
        let check = TokenCheck { issuer: &issuer, resource: Some("https://haft.example/mcp"), now_s: NOW_S };
        check.subject(claims.collect())
    }

    #[test]
    fn token_error_names_the_missing_or_wrong_claim() {
        let check = |changes: Value, expected: &str| {
            let told = subject(&changes).unwrap_err();
            assert!(
                matches!(&told, TokenError::Invalid(text) if text.contains(expected)),
                "{changes}: {told:?}"
            );
        };
        assert!(subject(&json!({})).is_ok());
        check(json!({"iss": null}), "another issuer");
        check(json!({"iss": "https://login.example/"}), "another issuer");
        check(json!({"exp": null}), "no claim `exp`");
        check(json!({"exp": "never"}), "`exp` is not a time");
        check(json!({"exp": NOW_S - 60}), "expired");
        check(json!({"nbf": NOW_S + 61}), "not valid yet");
        check(json!({"aud": null}), "claim `aud`");
        check(json!({"aud": ["other", "haft2"]}), "claim `aud`");
        check(json!({"aud": ""}), "claim `aud`");
        check(json!({"sub": null}), "no claim `sub`");
        check(json!({"sub": 7}), "no claim `sub`");
        check(json!({"org": ""}), "no claim `org`");
        check(json!({"org": "local"}), "which no token may use");
        check(json!({"org": "a/b"}), "a tenant with `/`");
        check(json!({"sub": "a\nb"}), "more than 256 characters");
        check(json!({"sub": "a".repeat(257)}), "more than 256 characters");
    }

    #[test]
    fn clock_difference_of_a_minute_is_tolerated() {
        assert!(subject(&json!({"exp": NOW_S - 59})).is_ok());
        assert!(subject(&json!({"nbf": NOW_S + 60, "exp": 1_000_100.5})).is_ok());
    }

    #[test]
    fn audience_is_a_string_or_a_list_and_may_be_the_url_of_the_resource() {
        for audience in
            [json!(["x", "haft"]), json!("https://haft.example/mcp"), json!(["https://haft.example/mcp/"])]
        {
            assert!(subject(&json!({ "aud": audience })).is_ok(), "{audience}");
        }
    }

    #[test]
    fn token_gets_only_the_scopes_that_the_configuration_maps_from_its_claims() {
        let check = |changes: Value, expected: &[KeyScope]| {
            assert_eq!(subject(&changes).unwrap().scopes, expected, "{changes}");
        };
        check(json!({}), &[KeyScope::Api]);
        check(json!({"scope": "api admin haft2"}), &[]);
        check(json!({"scope": null, "scp": ["haft"]}), &[KeyScope::Api]);
        check(json!({"scope": "operator"}), &[]);
        check(json!({"realm": {"roles": ["operator", "haft"]}}), &[KeyScope::Api, KeyScope::Admin]);
        check(json!({"scope": null, "realm.roles": ["operator"]}), &[KeyScope::Api, KeyScope::Admin]);
        check(json!({"scope": null, "roles": ["operator"]}), &[]);
    }

    #[test]
    fn principal_depends_on_tenant_and_subject_but_not_on_the_token() {
        let of = |changes: Value| subject(&changes).unwrap().principal;
        let (acme, other) = (of(json!({})), of(json!({"org": "other"})));
        assert!(!acme.is_subject_of(&other) && acme.credential_id() != other.credential_id());
        assert_eq!(acme, of(json!({"exp": NOW_S + 500, "jti": "2"})));
        // Test names that contain the separator: two different principals must not become equal.
        let nested = of(json!({"org": "a", "sub": "b/c"}));
        assert_eq!((nested.tenant(), nested.subject()), ("a", "b/c"));
        assert!(subject(&json!({"org": "a/b", "sub": "c"})).is_err());
    }
}
