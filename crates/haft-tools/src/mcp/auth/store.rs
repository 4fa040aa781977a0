//! Token storage: one file per server, readable only by its owner, and replaced atomically under a lock. With a
//! keyring, the token is in the keyring, and the file only marks this.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haft_fs::{file_lock, private_file};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::KeyringPreference;
use super::client::{ClientAuthMethod, OauthClient};
use super::dpop::DpopKey;
use super::error::AuthError;
use super::keyring::Keyring;
use super::signing_key::SigningKey;

/// The maximum wait for a lock that another process holds while it renews the token.
const LOCK_WAIT: Duration = Duration::from_mins(1);

/// The interval between attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The maximum size of a token file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An OAuth token, and the data needed to renew it.
#[derive(Clone)]
pub(super) struct OauthToken {
    pub(super) issuer: String,
    /// The token endpoint of the issuer: the only address besides the server that receives the token.
    pub(super) endpoint: Url,
    /// The resource that the token was requested for.
    pub(super) resource: String,
    pub(super) client: OauthClient,
    pub(super) access: SecretString,
    pub(super) refresh: Option<SecretString>,
    /// Seconds since the Unix epoch.
    pub(super) expires_at: Option<u64>,
    /// The scopes that were requested.
    pub(super) scopes: Vec<String>,
    /// The key that the token is bound to; `None` for a bearer token.
    pub(super) dpop: Option<DpopKey>,
}

/// The token file of one server. `load` returns only a token that was issued for the same server URL.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
    server: Url,
    keyring: Option<(Arc<dyn Keyring>, KeyringPreference)>,
}

/// An exclusive lock on a token file. Only the holder of the lock may change the file.
pub(super) struct TokenFileLock<'a> {
    file: &'a TokenFile,
    _lock: File,
}

/// The content of a token file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum TokenFileContent {
    Elsewhere(KeyringMarker),
    Here(Box<StoredToken>),
}

/// Marks a token that is in the keyring.
#[derive(Serialize, Deserialize)]
struct KeyringMarker {
    kept_in: TokenLocation,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TokenLocation {
    Keyring,
}

/// The stored form of a token, in the file or in the keyring.
#[derive(Serialize, Deserialize)]
struct StoredToken {
    version: u32,
    server: String,
    issuer: String,
    token_endpoint: String,
    resource: String,
    client_id: String,
    client_secret: Option<String>,
    client_proof: String,
    redirect_uri: Option<String>,
    access_token: String,
    refresh_token: Option<String>,
    expires_at: Option<u64>,
    scopes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dpop_key: Option<String>,
}

const VERSION: u32 = 1;

impl TokenFile {
    /// Creates the handle without accessing the file. `namespace` is a valid name, so it is a valid file name too.
    pub fn new(directory: &Path, namespace: &str, server: &Url) -> Self {
        Self { path: directory.join(format!("{namespace}.json")), server: server.clone(), keyring: None }
    }

    /// Sets the keyring that may hold the token instead of the file.
    #[must_use]
    pub fn with_keyring(self, keyring: Arc<dyn Keyring>, preference: KeyringPreference) -> Self {
        Self { keyring: Some((keyring, preference)), ..self }
    }

    /// Deletes the token; returns whether there was one.
    pub(super) async fn forget(&self) -> Result<bool, AuthError> {
        if let (Some(TokenFileContent::Elsewhere(_)), Some((keyring, _))) = (self.entry(), &self.keyring) {
            keyring.remove(&self.account()).await.map_err(|reason| keyring_unavailable(&reason))?;
        }
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    /// Loads the token for this server URL. Treats an unreadable file as no token. An unavailable keyring is an error,
    /// because its token may still be valid.
    pub(super) async fn load(&self) -> Result<Option<OauthToken>, AuthError> {
        let written = match (self.entry(), &self.keyring) {
            (Some(TokenFileContent::Here(written)), _) => Some(*written),
            (Some(TokenFileContent::Elsewhere(_)), Some((keyring, _))) => {
                let kept =
                    keyring.get(&self.account()).await.map_err(|reason| keyring_unavailable(&reason))?;
                kept.and_then(|text| serde_json::from_str(text.expose_secret()).ok())
            }
            (Some(TokenFileContent::Elsewhere(_)), None) => {
                return Err(keyring_unavailable("this program is built without the feature `keyring`"));
            }
            (None, _) => None,
        };
        let same =
            |written: &StoredToken| written.version == VERSION && written.server == self.server.as_str();
        Ok(written.filter(same).and_then(token))
    }

    fn entry(&self) -> Option<TokenFileContent> {
        let mut text = String::new();
        File::open(&self.path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    async fn store_in_keyring(
        &self,
        keyring: &Arc<dyn Keyring>,
        written: &StoredToken,
    ) -> Result<(), String> {
        let text = serde_json::to_string(written).map_err(|error| error.to_string())?;
        keyring.put(&self.account(), text.into()).await
    }

    /// Returns the account name in the keyring: the path of the token file, so that each home directory has its own
    /// tokens.
    fn account(&self) -> String {
        self.path.display().to_string()
    }

    /// Takes the lock, and waits while another process holds it.
    pub(super) async fn lock(&self) -> Result<TokenFileLock<'_>, AuthError> {
        let lock = self.open_lock().map_err(|error| self.unusable(&error))?;
        // Poll instead of waiting in the kernel, which would block a thread of the async runtime.
        let poll = async {
            while !file_lock::try_lock(&lock)? {
                tokio::time::sleep(LOCK_POLL).await;
            }
            io::Result::Ok(())
        };
        match tokio::time::timeout(LOCK_WAIT, poll).await {
            Ok(Ok(())) => Ok(TokenFileLock { file: self, _lock: lock }),
            Ok(Err(error)) => Err(self.unusable(&error)),
            Err(_) => Err(AuthError::Unreachable(
                "another process is still renewing the access token; try again".into(),
            )),
        }
    }

    fn open_lock(&self) -> io::Result<File> {
        private_file::create_parent_dir(&self.path)?;
        file_lock::open_lock_file(&self.path.with_extension("lock"))
    }

    fn unusable(&self, error: &io::Error) -> AuthError {
        AuthError::Refused(format!("haft cannot use the token file {}: {error}", self.path.display()))
    }
}

impl TokenFileLock<'_> {
    pub(super) async fn load(&self) -> Result<Option<OauthToken>, AuthError> {
        self.file.load().await
    }

    /// Saves the token atomically, so that no reader sees a partial file. A token that the keyring accepted is not
    /// written to a file.
    pub(super) async fn save(&self, token: &OauthToken) -> Result<(), AuthError> {
        let written = self.file.written(token);
        let (entry, keyring) = match &self.file.keyring {
            None => (TokenFileContent::Here(Box::new(written)), None),
            Some((keyring, KeyringPreference::Never)) => {
                (TokenFileContent::Here(Box::new(written)), Some(keyring))
            }
            Some((keyring, preference)) => {
                match (self.file.store_in_keyring(keyring, &written).await, preference) {
                    (Ok(()), _) => {
                        (TokenFileContent::Elsewhere(KeyringMarker { kept_in: TokenLocation::Keyring }), None)
                    }
                    (Err(reason), KeyringPreference::Required) => return Err(keyring_unavailable(&reason)),
                    (Err(_), KeyringPreference::WhereThereIsOne | KeyringPreference::Never) => {
                        (TokenFileContent::Here(Box::new(written)), Some(keyring))
                    }
                }
            }
        };
        let before = self.file.entry();
        let bytes = serde_json::to_vec(&entry).map_err(io::Error::from);
        let replaced = bytes.and_then(|bytes| private_file::replace(&self.file.path, &bytes));
        replaced.map_err(|error| self.file.unusable(&error))?;
        if let (Some(TokenFileContent::Elsewhere(_)), Some(keyring)) = (before, keyring) {
            // Ignore a failure, because haft never reads the stale entry in the keyring again.
            let _ = keyring.remove(&self.file.account()).await;
        }
        Ok(())
    }
}

/// Builds the error for an unavailable keyring. It is not `Refused`, because the stored token stays valid.
fn keyring_unavailable(reason: &str) -> AuthError {
    let hint = "unlock the keyring, or log in again with `tokenStore` set to `file`";
    AuthError::Unreachable(format!(
        "the token is in the keyring, but haft cannot use the keyring: {reason}; {hint}"
    ))
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

fn token(written: StoredToken) -> Option<OauthToken> {
    let dpop = match written.dpop_key {
        // A token that is bound to a key is useless without this key, so an invalid key makes the whole stored token
        // invalid.
        Some(key) => Some(DpopKey(Arc::new(SigningKey::of_stored(&key)?))),
        None => None,
    };
    Some(OauthToken {
        dpop,
        issuer: written.issuer,
        endpoint: Url::parse(&written.token_endpoint).ok()?,
        resource: written.resource,
        client: OauthClient {
            id: written.client_id,
            secret: written.client_secret.map(SecretString::from),
            key: None,
            proof: ClientAuthMethod::from_method_name(&written.client_proof)?,
            redirect: written.redirect_uri,
        },
        access: SecretString::from(written.access_token),
        refresh: written.refresh_token.map(SecretString::from),
        expires_at: written.expires_at,
        scopes: written.scopes,
    })
}

impl TokenFile {
    fn written(&self, token: &OauthToken) -> StoredToken {
        let exposed = |secret: &SecretString| secret.expose_secret().to_owned();
        StoredToken {
            version: VERSION,
            server: self.server.to_string(),
            issuer: token.issuer.clone(),
            token_endpoint: token.endpoint.to_string(),
            resource: token.resource.clone(),
            client_id: token.client.id.clone(),
            client_secret: token.client.secret.as_ref().map(exposed),
            client_proof: token.client.proof.word().to_owned(),
            redirect_uri: token.client.redirect.clone(),
            access_token: exposed(&token.access),
            refresh_token: token.refresh.as_ref().map(exposed),
            expires_at: token.expires_at,
            scopes: token.scopes.clone(),
            dpop_key: token.dpop.as_ref().map(|key| exposed(&key.0.stored())),
        }
    }
}
