//! Assertions: tokens that prove who the client or its user is, in place of a secret or a login.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::error::AuthError;
use super::signing_key::SigningKey;

/// The time for which an assertion of the client is valid, in seconds. It is sent at once.
const CLIENT_ASSERTION_SECONDS: u64 = 60;

/// The largest assertion file that is read, in bytes.
const ASSERTION_BYTES_MAX: u64 = 64 << 10;

/// The grant that redeems an assertion (RFC 7523, section 2.1).
pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The kind of assertion that authenticates a client (RFC 7523, section 2.2).
pub(super) const CLIENT_ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Signs the assertion that authenticates a client. Its audience is the issuer, so that no other server can use it.
pub(super) fn of_client(key: &SigningKey, id: &str, issuer: &str, now: u64) -> Result<String, AuthError> {
    let claims = json!({
        "iss": id,
        "sub": id,
        "aud": issuer,
        "jti": uuid::Uuid::new_v4().to_string(),
        "iat": now,
        "exp": now.saturating_add(CLIENT_ASSERTION_SECONDS),
    });
    key.sign(json!({ "typ": "JWT" }), &claims).map_err(AuthError::Refused)
}

/// Reads an assertion from its file. It is read for every token, because platforms replace the file before the
/// assertion expires.
pub(super) fn of_file(path: &Path) -> Result<SecretString, AuthError> {
    let unreadable =
        |reason: String| AuthError::Refused(format!("`oauth.assertionFile` {}: {reason}", path.display()));
    let is_file = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !is_file.is_file() || is_file.len() > ASSERTION_BYTES_MAX {
        return Err(unreadable(format!("expected a file of at most {ASSERTION_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let text = SecretString::from(text.trim());
    if text.expose_secret().is_empty() { Err(unreadable("it is empty".into())) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::super::signing_key::tests::verified;
    use super::*;

    #[test]
    fn assertion_of_a_client_names_the_client_and_the_issuer() {
        let key = SigningKey::generate().unwrap();
        let token = of_client(&key, "me", "https://as", 100).unwrap();
        let (header, claims) = verified(&token, &key.public_jwk());
        assert_eq!(header, json!({"typ": "JWT", "alg": "ES256"}));
        let named = ["iss", "sub", "aud"].map(|name| claims[name].as_str().unwrap());
        assert_eq!(named, ["me", "me", "https://as"]);
        assert_eq!((&claims["iat"], &claims["exp"]), (&json!(100), &json!(160)));
    }

    #[test]
    fn assertion_file_is_read_within_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let check = |content: &str, expected: Result<&str, &str>| {
            let path = dir.path().join("token");
            std::fs::write(&path, content).unwrap();
            match (of_file(&path), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text.expose_secret(), expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, expected) => panic!("{content:?}: {}, {expected:?}", found.is_ok()),
            }
        };
        check("a.b.c\n", Ok("a.b.c"));
        check(" \n", Err("it is empty"));
        check(&"x".repeat(70_000), Err("at most 65536 bytes"));
        assert!(of_file(&dir.path().join("none")).unwrap_err().to_string().contains("assertionFile"));
    }
}
