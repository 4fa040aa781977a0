//! Where tokens are kept: for each server a file that only its owner reads, replaced in one step, by one at a time. Where there is
//! a keyring the token is in there, and the file only says so.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::Preference;
use super::client::{Client, Proof};
use super::error::AuthError;
use super::keyring::Keyring;
use crate::private_file;

/// How long another process may hold the file: it waits for two answers at most.
const LOCK_WAIT: Duration = Duration::from_mins(1);

/// How often is looked whether it is free.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A token and everything needed to renew it.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) issuer: String,
    /// Where it is renewed: an address of that issuer, and the only one it is ever sent to but for the server.
    pub(super) endpoint: Url,
    /// What it is good for, as the authorization server was told.
    pub(super) resource: String,
    pub(super) client: Client,
    pub(super) access: SecretString,
    pub(super) refresh: Option<SecretString>,
    /// Seconds since 1970.
    pub(super) expires_at: Option<u64>,
    /// What was asked for.
    pub(super) scopes: Vec<String>,
}

/// The file of one server. It holds a token only for the address it was got for.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
    server: Url,
    keyring: Option<(Arc<dyn Keyring>, Preference)>,
}

/// The right to change it, for as long as it lives.
pub(super) struct Locked<'a> {
    file: &'a TokenFile,
    _lock: File,
}

/// What a file says.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    Elsewhere(Elsewhere),
    Here(Box<Written>),
}

/// The token is in the keyring.
#[derive(Serialize, Deserialize)]
struct Elsewhere {
    kept_in: Place,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Place {
    Keyring,
}

/// As it stands in the file or in the keyring.
#[derive(Serialize, Deserialize)]
struct Written {
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
}

const VERSION: u32 = 1;

impl TokenFile {
    /// `namespace` is a legal name, so it is a legal file name too.
    pub fn new(directory: &Path, namespace: &str, server: &Url) -> Self {
        Self { path: directory.join(format!("{namespace}.json")), server: server.clone(), keyring: None }
    }

    /// The same, with a keyring beside it.
    #[must_use]
    pub fn with_keyring(self, keyring: Arc<dyn Keyring>, preference: Preference) -> Self {
        Self { keyring: Some((keyring, preference)), ..self }
    }

    /// Forgets the token. Whether there was one is told.
    pub(super) async fn forget(&self) -> Result<bool, AuthError> {
        if let (Some(Entry::Elsewhere(_)), Some((keyring, _))) = (self.entry(), &self.keyring) {
            keyring.remove(&self.account()).await.map_err(|reason| unreached(&reason))?;
        }
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    /// The token for this very address. What cannot be read is as good as none; a keyring that cannot be reached is not.
    pub(super) async fn load(&self) -> Result<Option<Token>, AuthError> {
        let written = match (self.entry(), &self.keyring) {
            (Some(Entry::Here(written)), _) => Some(*written),
            (Some(Entry::Elsewhere(_)), Some((keyring, _))) => {
                let kept = keyring.get(&self.account()).await.map_err(|reason| unreached(&reason))?;
                kept.and_then(|text| serde_json::from_str(text.expose_secret()).ok())
            }
            (Some(Entry::Elsewhere(_)), None) => return Err(unreached("this program has none")),
            (None, _) => None,
        };
        let same = |written: &Written| written.version == VERSION && written.server == self.server.as_str();
        Ok(written.filter(same).and_then(token))
    }

    fn entry(&self) -> Option<Entry> {
        let mut text = String::new();
        File::open(&self.path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    async fn hand_over(&self, keyring: &Arc<dyn Keyring>, written: &Written) -> Result<(), String> {
        let text = serde_json::to_string(written).map_err(|error| error.to_string())?;
        keyring.put(&self.account(), text.into()).await
    }

    /// What the keyring knows the token by. Other homes have other tokens.
    fn account(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits for everybody else who may be changing it.
    pub(super) async fn lock(&self) -> Result<Locked<'_>, AuthError> {
        let lock = self.open_lock().map_err(|error| self.unusable(&error))?;
        let poll = async {
            loop {
                match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                    Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
                        tokio::time::sleep(LOCK_POLL).await;
                    }
                    done => return done,
                }
            }
        };
        match tokio::time::timeout(LOCK_WAIT, poll).await {
            Ok(Ok(())) => Ok(Locked { file: self, _lock: lock }),
            Ok(Err(error)) => Err(self.unusable(&error.into())),
            Err(_) => {
                Err(AuthError::Unreachable("another process is still renewing the token; try again".into()))
            }
        }
    }

    fn open_lock(&self) -> io::Result<File> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let path = self.path.with_extension("lock");
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    fn unusable(&self, error: &io::Error) -> AuthError {
        AuthError::Refused(format!("the token cannot be kept in {}: {error}", self.path.display()))
    }
}

impl Locked<'_> {
    pub(super) async fn load(&self) -> Result<Option<Token>, AuthError> {
        self.file.load().await
    }

    /// In one step, so that nobody ever reads half of it. What the keyring has taken is in no file.
    pub(super) async fn save(&self, token: &Token) -> Result<(), AuthError> {
        let written = self.file.written(token);
        let (entry, keyring) = match &self.file.keyring {
            None => (Entry::Here(Box::new(written)), None),
            Some((keyring, Preference::Never)) => (Entry::Here(Box::new(written)), Some(keyring)),
            Some((keyring, preference)) => match (self.file.hand_over(keyring, &written).await, preference) {
                (Ok(()), _) => (Entry::Elsewhere(Elsewhere { kept_in: Place::Keyring }), None),
                (Err(reason), Preference::Required) => return Err(unreached(&reason)),
                (Err(_), Preference::WhereThereIsOne | Preference::Never) => {
                    (Entry::Here(Box::new(written)), Some(keyring))
                }
            },
        };
        let before = self.file.entry();
        let bytes = serde_json::to_vec(&entry).map_err(io::Error::from);
        let replaced = bytes.and_then(|bytes| private_file::replace(&self.file.path, &bytes));
        replaced.map_err(|error| self.file.unusable(&error))?;
        if let (Some(Entry::Elsewhere(_)), Some(keyring)) = (before, keyring) {
            // What is left in it is never read again; that it cannot be removed now harms nobody.
            let _ = keyring.remove(&self.file.account()).await;
        }
        Ok(())
    }
}

/// What is held stays good: the keyring may be there again.
fn unreached(reason: &str) -> AuthError {
    let hint = "unlock it, or log in again with `tokenStore` set to `file`";
    AuthError::Unreachable(format!("the token is in the keyring, which cannot be used: {reason}; {hint}"))
}

impl std::fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

fn token(written: Written) -> Option<Token> {
    Some(Token {
        issuer: written.issuer,
        endpoint: Url::parse(&written.token_endpoint).ok()?,
        resource: written.resource,
        client: Client {
            id: written.client_id,
            secret: written.client_secret.map(SecretString::from),
            proof: Proof::of_word(&written.client_proof)?,
            redirect: written.redirect_uri,
        },
        access: SecretString::from(written.access_token),
        refresh: written.refresh_token.map(SecretString::from),
        expires_at: written.expires_at,
        scopes: written.scopes,
    })
}

impl TokenFile {
    fn written(&self, token: &Token) -> Written {
        let exposed = |secret: &SecretString| secret.expose_secret().to_owned();
        Written {
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
        }
    }
}
