//! `DPoP` (RFC 9449): binds a token to a key, and proves with every request that the client has the key.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use url::Url;

use super::signing_key::SigningKey;

/// The header with the proof.
pub(super) const PROOF_HEADER: &str = "dpop";

/// The error code of a server that requires its nonce in the proof.
pub(super) const NONCE_REQUIRED: &str = "use_dpop_nonce";

/// The maximum length of a nonce that haft sends back, in bytes.
const NONCE_BYTES_MAX: usize = 1024;

/// The key that a token is bound to. It signs every proof.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct DpopKey(pub(super) Arc<SigningKey>);

/// The request that a proof is for.
#[derive(Clone, Copy)]
pub(super) struct ProofTarget<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a Url,
    /// The nonce that the server sent last.
    pub(super) nonce: Option<&'a str>,
    /// The access token of the request; `None` for a request to the token endpoint.
    pub(super) token: Option<&'a SecretString>,
}

impl DpopKey {
    pub(super) fn generate() -> Result<Self, String> {
        SigningKey::generate().map(|key| Self(Arc::new(key)))
    }

    /// Signs a proof. Each proof has its own `jti`, because servers reject a proof that they have seen.
    pub(super) fn proof(&self, target: ProofTarget<'_>, now: u64) -> Result<String, String> {
        let header = json!({ "typ": "dpop+jwt", "jwk": self.0.public_jwk() });
        let jti = uuid::Uuid::new_v4().to_string();
        self.0.sign(header, &claims(target, &jti, now))
    }
}

fn claims(target: ProofTarget<'_>, jti: &str, now: u64) -> Value {
    let ProofTarget { method, url, nonce, token } = target;
    let mut address = url.clone();
    address.set_query(None);
    address.set_fragment(None);
    let mut claims = json!({ "jti": jti, "htm": method, "htu": address.as_str(), "iat": now });
    if let Some(nonce) = nonce {
        claims["nonce"] = nonce.into();
    }
    if let Some(token) = token {
        let digest = Sha256::digest(token.expose_secret().as_bytes());
        claims["ath"] = BASE64_URL_SAFE_NO_PAD.encode(digest).into();
    }
    claims
}

/// Returns the nonce of a response, which the next proof for this server must contain.
pub(super) fn nonce(headers: &HeaderMap) -> Option<String> {
    let nonce = headers.get("dpop-nonce")?.to_str().ok()?;
    (!nonce.is_empty() && nonce.len() <= NONCE_BYTES_MAX).then(|| nonce.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::signing_key::tests::verified;
    use super::*;

    #[test]
    fn dpop_proof_names_request_token_and_nonce_and_is_unique() {
        let key = DpopKey::generate().unwrap();
        let url = Url::parse("https://h/mcp?secret=1#x").unwrap();
        let token = SecretString::from("token");
        let target = ProofTarget { method: "POST", url: &url, nonce: Some("n"), token: Some(&token) };
        let (first, second) = (key.proof(target, 5).unwrap(), key.proof(target, 5).unwrap());
        let (header, claims) = verified(&first, &key.0.public_jwk());
        assert_eq!(header, json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": key.0.public_jwk()}));
        assert_eq!((&claims["htm"], &claims["htu"]), (&json!("POST"), &json!("https://h/mcp")));
        assert_eq!((&claims["iat"], &claims["nonce"]), (&json!(5), &json!("n")));
        // SHA-256 of `token`.
        assert_eq!(claims["ath"], "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A");
        assert_ne!(claims["jti"], verified(&second, &key.0.public_jwk()).1["jti"]);
        let bare = key.proof(ProofTarget { nonce: None, token: None, ..target }, 5).unwrap();
        let (_, claims) = verified(&bare, &key.0.public_jwk());
        assert_eq!((&claims["ath"], &claims["nonce"]), (&Value::Null, &Value::Null));
    }
}
