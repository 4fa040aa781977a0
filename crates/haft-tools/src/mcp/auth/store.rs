//! Where tokens are kept: a file for each server that only its owner reads, replaced in one step, by one at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::client::{Client, Proof};
use super::error::AuthError;
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
#[derive(Debug, Clone)]
pub struct TokenFile {
    path: PathBuf,
    server: Url,
}

/// The right to change it, for as long as it lives.
pub(super) struct Locked<'a> {
    file: &'a TokenFile,
    _lock: File,
}

/// As it stands in the file.
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
        Self { path: directory.join(format!("{namespace}.json")), server: server.clone() }
    }

    /// Forgets the token. Whether there was one is told.
    pub fn forget(&self) -> io::Result<bool> {
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The token for this very address. What cannot be read is as good as none.
    pub(super) fn load(&self) -> Option<Token> {
        let mut text = String::new();
        File::open(&self.path).ok()?.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
        let written: Written = serde_json::from_str(&text).ok()?;
        let same = written.version == VERSION && written.server == self.server.as_str();
        if same { token(written) } else { None }
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
    pub(super) fn load(&self) -> Option<Token> {
        self.file.load()
    }

    /// In one step, so that nobody ever reads half of it.
    pub(super) fn save(&self, token: &Token) -> Result<(), AuthError> {
        let bytes = serde_json::to_vec(&self.file.written(token)).map_err(io::Error::from);
        let written = bytes.and_then(|bytes| private_file::replace(&self.file.path, &bytes));
        written.map_err(|error| self.file.unusable(&error))
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
