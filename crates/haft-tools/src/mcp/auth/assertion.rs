//! Assertions: tokens that prove who the client or its user is, in place of a secret or a login.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::error::AuthError;
use super::signing_key::SigningKey;

/// The time for which an assertion of the client is valid, in seconds. haft sends the assertion at once, so a short
/// time is enough.
const CLIENT_ASSERTION_SECONDS: u64 = 60;

/// The maximum size of an assertion file, in bytes.
const ASSERTION_BYTES_MAX: u64 = 64 << 10;

/// The grant type that exchanges an assertion for a token (RFC 7523, section 2.1).
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

/// Reads an assertion from its file. haft reads the file again for every token, because platforms replace the file
/// before the assertion expires.
pub(super) async fn of_file(path: &Path) -> Result<SecretString, AuthError> {
    let unreadable =
        |reason: String| AuthError::Refused(format!("`oauth.assertionFile` `{}`: {reason}", path.display()));
    let file = path.to_owned();
    // The file may be on a slow network file system, which must not block other tasks.
    let read = tokio::task::spawn_blocking(move || read_bounded(&file)).await;
    let text = read.map_err(|error| unreadable(error.to_string()))?.map_err(unreadable)?;
    let text = SecretString::from(text.trim());
    if text.expose_secret().is_empty() { Err(unreadable("the file is empty".into())) } else { Ok(text) }
}

/// Reads a file within the limit. The limit applies to the bytes that are read, because a file can grow, and files in
/// `/proc` report the size 0.
fn read_bounded(path: &Path) -> Result<String, String> {
    let not_a_file = || format!("expected a file of at most {ASSERTION_BYTES_MAX} bytes");
    // Without this flag, opening a named pipe would wait for a writer.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let open = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = open.map_err(|error| error.to_string())?;
    if !file.metadata().map_err(|error| error.to_string())?.is_file() {
        return Err(not_a_file());
    }
    let mut bytes = Vec::new();
    file.take(ASSERTION_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > ASSERTION_BYTES_MAX {
        return Err(not_a_file());
    }
    String::from_utf8(bytes).map_err(|_| "the file is not valid UTF-8".to_owned())
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
    fn each_assertion_of_a_client_has_its_own_id() {
        let key = SigningKey::generate().unwrap();
        let id = || {
            verified(&of_client(&key, "me", "https://as", 100).unwrap(), &key.public_jwk()).1["jti"].clone()
        };
        let (first, second) = (id(), id());
        assert!(first.is_string() && first != second, "{first} {second}");
    }

    #[tokio::test]
    async fn assertion_file_is_read_within_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let check = async |path: &Path, expected: Result<&str, &str>| match (of_file(path).await, expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text.expose_secret(), expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("{}: {}, {expected:?}", path.display(), found.is_ok()),
        };
        let path = dir.path().join("token");
        for (content, expected) in [
            ("a.b.c\n", Ok("a.b.c")),
            (" \n", Err("the file is empty")),
            (&*"x".repeat(70_000), Err("at most 65536 bytes")),
        ] {
            std::fs::write(&path, content).unwrap();
            check(&path, expected).await;
        }
        check(&dir.path().join("none"), Err("assertionFile")).await;
        check(dir.path(), Err("expected a file")).await;
    }

    #[tokio::test]
    async fn limit_of_an_assertion_file_does_not_depend_on_its_reported_size() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "echo started; read end", "sh", &"x".repeat(70_000)])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The file is empty until the shell has started.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; "started".len()]).unwrap();
        // The kernel reports the size 0 for this file, although it contains the arguments of the process.
        let path = std::path::PathBuf::from(format!("/proc/{}/cmdline", child.id()));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        let error = of_file(&path).await.unwrap_err().to_string();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(error.contains("at most 65536 bytes"), "{error}");
    }
}
