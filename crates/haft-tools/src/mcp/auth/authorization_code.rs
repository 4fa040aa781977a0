//! The authorization code flow with PKCE: builds the authorization URL, and checks the redirect that answers it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use url::Url;
use uuid::Uuid;

use super::client::OauthClient;
use super::discovery::AuthorizationServer;
use super::endpoint_requests::known_code;
use super::error::AuthError;

/// One authorization request. The authorization URL contains only a hash of the PKCE verifier; haft sends the verifier
/// itself only in the final token request.
pub(super) struct AuthorizationRequest {
    pub(super) url: Url,
    pub(super) redirect: String,
    state: String,
    pub(super) verifier: String,
}

/// The parameters of an authorization request.
pub(super) struct AuthorizationParams<'a> {
    pub(super) client: &'a OauthClient,
    pub(super) redirect: &'a str,
    pub(super) resource: &'a str,
    pub(super) scopes: &'a [String],
}

impl AuthorizationRequest {
    /// Builds a request with fresh secrets. Refuses a server without PKCE S256, because an attacker could redeem an
    /// intercepted code at such a server.
    pub(super) fn new(
        issuer: &AuthorizationServer,
        subject: &AuthorizationParams<'_>,
    ) -> Result<Self, AuthError> {
        if !issuer.code_challenge_methods_supported.iter().any(|method| method == "S256") {
            return Err(AuthError::refused(
                "the authorization server does not advertise PKCE with S256, without which a login is not secure",
            ));
        }
        let endpoint = issuer.authorization_endpoint.as_ref();
        let mut url = endpoint
            .ok_or_else(|| {
                AuthError::refused("the authorization server has no authorization endpoint for a user login")
            })?
            .clone();
        let (state, verifier) = (random(), random());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &subject.client.id)
            .append_pair("redirect_uri", subject.redirect)
            .append_pair("state", &state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", subject.resource);
        if !subject.scopes.is_empty() {
            url.query_pairs_mut().append_pair("scope", &subject.scopes.join(" "));
        }
        Ok(Self { url, redirect: subject.redirect.to_owned(), state, verifier })
    }

    /// Returns the code from the redirect URL, after checking that the redirect answers this request and comes from
    /// this issuer.
    pub(super) fn code(&self, issuer: &AuthorizationServer, answer: &Url) -> Result<String, AuthError> {
        let field = |name: &str| {
            answer.query_pairs().find(|(found, _)| found == name).map(|(_, value)| value.into_owned())
        };
        if field("state").as_deref() != Some(self.state.as_str()) {
            return Err(AuthError::refused(
                "the login response belongs to another login; start the login again",
            ));
        }
        // RFC 9207 (section 2.4) requires a simple string comparison, without normalising the URLs.
        match field("iss") {
            Some(iss) if iss != issuer.issuer => {
                return Err(AuthError::refused(
                    "the login response comes from another authorization server, so haft refuses it",
                ));
            }
            None if issuer.authorization_response_iss_parameter_supported => {
                return Err(AuthError::refused(
                    "the login response has no `iss` field, which must name the authorization server",
                ));
            }
            Some(_) | None => {}
        }
        if let Some(error) = field("error") {
            return Err(AuthError::Refused(format!(
                "the authorization server refused the login ({})",
                known_code(&error)
            )));
        }
        field("code").ok_or_else(|| {
            AuthError::refused("the login response has no authorization code; start the login again")
        })
    }
}

/// Returns 244 random bits in characters that need no escaping.
fn random() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::super::client::ClientAuthMethod;
    use super::*;

    fn issuer(extra: &str) -> AuthorizationServer {
        let text = format!(
            r#"{{"issuer":"https://as","token_endpoint":"https://as/t","authorization_endpoint":"https://as/a?x=1"{extra}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn question(issuer: &AuthorizationServer) -> Result<AuthorizationRequest, AuthError> {
        let client = OauthClient {
            id: "me".into(),
            secret: None,
            key: None,
            proof: ClientAuthMethod::None,
            redirect: None,
        };
        let scopes = ["r".to_owned(), "w".to_owned()];
        let redirect = "http://127.0.0.1:1/callback";
        AuthorizationRequest::new(
            issuer,
            &AuthorizationParams { client: &client, redirect, resource: "https://h/mcp", scopes: &scopes },
        )
    }

    const S256: &str = r#","code_challenge_methods_supported":["S256"]"#;

    #[test]
    fn authorization_url_has_scope_resource_and_pkce_but_no_verifier() {
        let asked = question(&issuer(S256)).unwrap();
        let url = asked.url.as_str();
        for part in [
            "x=1",
            "client_id=me",
            "scope=r+w",
            "resource=https%3A%2F%2Fh%2Fmcp",
            "code_challenge_method=S256",
        ] {
            assert!(url.contains(part), "{url}");
        }
        assert!(!url.contains(&asked.verifier));
        assert!((43..=128).contains(&asked.verifier.len()));
    }

    #[test]
    fn authorization_requires_pkce_s256() {
        assert!(question(&issuer("")).is_err());
        assert!(question(&issuer(r#","code_challenge_methods_supported":["plain"]"#)).is_err());
    }

    #[test]
    fn login_redirect_must_match_state_and_issuer() {
        let says = r#","code_challenge_methods_supported":["S256"],"authorization_response_iss_parameter_supported":true"#;
        let check = |extra: &str, answer: &str, expected: bool| {
            let issuer = issuer(extra);
            let asked = question(&issuer).unwrap();
            let answer = answer.replace("STATE", &asked.state);
            let answer = Url::parse(&format!("http://127.0.0.1:1/callback?{answer}")).unwrap();
            assert_eq!(asked.code(&issuer, &answer).is_ok(), expected, "{answer}");
        };
        check(S256, "code=c&state=STATE", true);
        check(S256, "code=c&state=STATE&iss=https://as", true);
        check(S256, "code=c&state=STATE&iss=https://as/", false);
        check(S256, "code=c&state=STATE&iss=https://evil", false);
        check(says, "code=c&state=STATE", false);
        check(says, "code=c&state=STATE&iss=https://as", true);
        check(S256, "code=c&state=other", false);
        check(S256, "code=c", false);
        check(S256, "state=STATE", false);
        check(S256, "error=access_denied&state=STATE&code=c", false);
    }
}
