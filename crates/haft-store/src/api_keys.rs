//! The API keys of the server: one file with the digests of all keys, replaced as a whole under a lock.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::principal::Principal;
pub use haft_core::settings::server::{KeyLimits, KeyScope};
use haft_fs::private_file;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::grants::lock;

/// The version of the file format. haft reads no other version.
const VERSION: u32 = 1;

/// The number of random bytes of a key. A key of this length cannot be guessed, so its digest needs no salt and no slow
/// hash.
const SECRET_BYTES: usize = 32;

/// The prefix of every key, by which scanners for leaked secrets recognise it.
const MARK: &str = "haft_";

/// The number of characters of a key that key lists show.
const PREFIX_CHARS: usize = MARK.len() + 8;

/// The settings of a new API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// A name that the operator chooses.
    pub name: String,
    /// The organisation that the key belongs to; tenants share no data.
    pub tenant: String,
    /// The user within the tenant. Keys of one subject see the same responses.
    pub subject: String,
    pub scopes: Vec<KeyScope>,
    /// The expiry time, in milliseconds since 1970; `None` for a key that does not expire.
    pub expires_ms: Option<u64>,
    pub limits: KeyLimits,
}

/// A stored key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyRecord {
    /// The id of the key in commands and records.
    pub id: String,
    pub name: String,
    /// The first characters of the secret, so that the owner recognises the key.
    pub prefix: String,
    digest: String,
    pub tenant: String,
    pub subject: String,
    pub scopes: Vec<KeyScope>,
    pub created_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    #[serde(default)]
    pub limits: KeyLimits,
    /// The secret that the last rotation replaced; `None` if the key was never rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<PreviousSecret>,
}

/// A secret that a rotation has replaced. It stays valid for some time, so that clients can change to the new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PreviousSecret {
    digest: String,
    /// The time at which the secret becomes invalid, in milliseconds since 1970.
    expires_ms: u64,
}

impl ApiKeyRecord {
    /// Returns true if the key has expired at this time, in milliseconds since 1970.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|expires| expires <= now_ms)
    }

    /// Returns the time at which the secret before the last rotation becomes invalid, in milliseconds since 1970; `None`
    /// for a key that was never rotated.
    pub fn previous_expires_ms(&self) -> Option<u64> {
        self.previous.as_ref().map(|previous| previous.expires_ms)
    }

    /// Returns the state of the secret with this digest; `None` for the secret of another key.
    fn lookup(&self, digest: &str, now_ms: u64) -> Option<KeyLookup<'_>> {
        let is_current = self.digest == digest;
        let previous = self.previous.as_ref().filter(|previous| previous.digest == digest);
        let is_over = previous.is_some_and(|previous| previous.expires_ms <= now_ms);
        match (is_current || previous.is_some(), self.is_expired(now_ms) || is_over) {
            (false, _) => None,
            (true, true) => Some(KeyLookup::Expired(self)),
            (true, false) => Some(KeyLookup::Valid(self)),
        }
    }

    /// Returns the principal on whose behalf requests with this key run.
    pub fn principal(&self) -> Principal {
        Principal::new(&self.tenant, &self.subject, &self.id)
    }
}

/// The secret of a new key. It is shown once and never stored.
pub struct ApiKeySecret(String);

impl ApiKeySecret {
    /// Returns the text that a client sends.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeySecret(…)")
    }
}

/// All API keys that the file contained when haft read it.
#[derive(Debug, Clone, Default)]
pub struct ApiKeys {
    keys: Vec<ApiKeyRecord>,
}

/// The outcome of looking up an API key by its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLookup<'a> {
    Valid(&'a ApiKeyRecord),
    Expired(&'a ApiKeyRecord),
    Unknown,
}

impl ApiKeys {
    /// Returns all keys, the oldest first.
    pub fn all(&self) -> &[ApiKeyRecord] {
        &self.keys
    }

    /// Looks up a secret. Compares digests, so that the time of the lookup reveals nothing about a stored key.
    pub fn find(&self, secret: &str, now_ms: u64) -> KeyLookup<'_> {
        self.find_digest(Digest::of_text(secret), now_ms)
    }

    /// Looks up the digest of a secret.
    pub fn find_digest(&self, digest: Digest, now_ms: u64) -> KeyLookup<'_> {
        let digest = digest.to_string();
        let found = self.keys.iter().find_map(|key| key.lookup(&digest, now_ms));
        found.unwrap_or(KeyLookup::Unknown)
    }
}

/// Identifies one state of the API key file. The value changes whenever the keys change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyFileVersion {
    inode: u64,
    length: u64,
    changed: Option<SystemTime>,
}

/// The file that stores all API keys.
#[derive(Debug, Clone)]
pub struct ApiKeyStore {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeysFile {
    version: u32,
    keys: Vec<ApiKeyRecord>,
}

impl ApiKeyStore {
    pub fn of(home: &Home) -> Self {
        Self { path: home.data().join("api-keys.json") }
    }

    /// Returns the version of the file; `None` if there is no file. This costs one `stat` call, so a server can check
    /// it for every request.
    pub fn version(&self) -> Option<KeyFileVersion> {
        use std::os::unix::fs::MetadataExt;
        let file = std::fs::metadata(&self.path).ok()?;
        Some(KeyFileVersion { inode: file.ino(), length: file.len(), changed: file.modified().ok() })
    }

    /// Reads all keys. A missing file means that there are no keys. An unreadable file is an error, so that it is not
    /// mistaken for a file without keys.
    pub fn load(&self) -> io::Result<ApiKeys> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ApiKeys::default()),
            Err(error) => return Err(error),
        };
        let problem = |text: String| io::Error::other(format!("{}: {text}", self.path.display()));
        let file: KeysFile = serde_json::from_slice(&bytes).map_err(|error| problem(error.to_string()))?;
        if file.version != VERSION {
            let found = file.version;
            return Err(problem(format!(
                "the API key file has version {found}; this version of haft reads version {VERSION}"
            )));
        }
        Ok(ApiKeys { keys: file.keys })
    }

    /// Creates a key and returns its secret, which cannot be shown again.
    pub fn create(&self, new: NewApiKey, now_ms: u64) -> io::Result<(ApiKeyRecord, ApiKeySecret)> {
        let secret = new_secret()?;
        let record = ApiKeyRecord {
            id: format!("key_{}", random_hex::<6>()?),
            name: new.name,
            prefix: secret[..PREFIX_CHARS].to_owned(),
            digest: Digest::of_text(&secret).to_string(),
            tenant: new.tenant,
            subject: new.subject,
            scopes: new.scopes,
            created_ms: now_ms,
            expires_ms: new.expires_ms,
            limits: new.limits,
            previous: None,
        };
        self.change(|keys| keys.push(record.clone()))?;
        Ok((record, ApiKeySecret(secret)))
    }

    /// Gives a key a new secret. The present secret stays valid until `previous_expires_ms`, and an earlier one becomes
    /// invalid at once. Returns `None` if there is no key with this id.
    pub fn rotate(
        &self,
        id: &str,
        previous_expires_ms: u64,
    ) -> io::Result<Option<(ApiKeyRecord, ApiKeySecret)>> {
        let secret = new_secret()?;
        self.change(|keys| {
            let key = keys.iter_mut().find(|key| key.id == id)?;
            let digest = std::mem::replace(&mut key.digest, Digest::of_text(&secret).to_string());
            key.previous = Some(PreviousSecret { digest, expires_ms: previous_expires_ms });
            secret[..PREFIX_CHARS].clone_into(&mut key.prefix);
            Some((key.clone(), ApiKeySecret(secret)))
        })
    }

    /// Removes the keys with these ids, and returns the removed keys.
    pub fn revoke(&self, ids: &[String]) -> io::Result<Vec<ApiKeyRecord>> {
        self.change(|keys| {
            let is_revoked = |key: &ApiKeyRecord| ids.contains(&key.id);
            let revoked = keys.iter().filter(|key| is_revoked(key)).cloned().collect();
            keys.retain(|key| !is_revoked(key));
            revoked
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<ApiKeyRecord>) -> T) -> io::Result<T> {
        let _lock = lock(&self.path.with_extension("lock"))?;
        let ApiKeys { mut keys } = self.load()?;
        let outcome = change(&mut keys);
        let bytes = serde_json::to_vec_pretty(&KeysFile { version: VERSION, keys })?;
        private_file::replace(&self.path, &bytes)?;
        Ok(outcome)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn new_secret() -> io::Result<String> {
    Ok(format!("{MARK}{}", random_hex::<SECRET_BYTES>()?))
}

fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0_u8; N];
    // `getrandom` never returns fewer bytes for requests of up to 256 bytes.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn new(expires_ms: Option<u64>) -> NewApiKey {
        NewApiKey {
            name: "laptop".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            scopes: vec![KeyScope::Api],
            expires_ms,
            limits: KeyLimits::default(),
        }
    }

    #[test]
    fn api_key_file_contains_no_secret_and_has_private_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        let (record, secret) = store.create(new(None), 5).unwrap();
        let text = std::fs::read_to_string(store.path()).unwrap();
        assert!(!text.contains(secret.expose()) && text.contains(&record.prefix), "{text}");
        assert_eq!(std::fs::metadata(store.path()).unwrap().mode() & 0o777, 0o600);
        assert!(secret.expose().len() >= 64 && secret.expose().starts_with(&record.prefix));
    }

    #[test]
    fn api_key_is_found_by_its_secret_until_it_expires_or_is_revoked() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        let (record, secret) = store.create(new(Some(10)), 5).unwrap();
        let keys = store.load().unwrap();
        assert_eq!(keys.find(secret.expose(), 9), KeyLookup::Valid(&record));
        assert_eq!(keys.find(secret.expose(), 10), KeyLookup::Expired(&record));
        assert_eq!(keys.find(&record.prefix, 9), KeyLookup::Unknown);
        assert_eq!(record.principal(), Principal::new("acme", "anna", &record.id));
        let before = store.version();
        assert_eq!(store.revoke(&[record.id.clone(), "key_none".into()]).unwrap(), [record]);
        assert_ne!(store.version(), before, "the version changes with every change");
        assert_eq!(store.load().unwrap().find(secret.expose(), 9), KeyLookup::Unknown);
    }

    #[test]
    fn rotated_key_keeps_its_id_and_its_old_secret_until_the_overlap_ends() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        let (record, first) = store.create(new(Some(100)), 5).unwrap();
        let (rotated, second) = store.rotate(&record.id, 20).unwrap().unwrap();
        assert_eq!(rotated.principal(), record.principal());
        assert_eq!((&rotated.scopes, rotated.expires_ms), (&record.scopes, record.expires_ms));
        assert!(second.expose().starts_with(&rotated.prefix) && rotated.prefix != record.prefix);
        let keys = store.load().unwrap();
        assert_eq!(keys.find(first.expose(), 19), KeyLookup::Valid(&rotated));
        assert_eq!(keys.find(first.expose(), 20), KeyLookup::Expired(&rotated));
        assert_eq!(keys.find(second.expose(), 99), KeyLookup::Valid(&rotated));
        assert_eq!(keys.find(second.expose(), 100), KeyLookup::Expired(&rotated));
        let (_, third) = store.rotate(&record.id, 30).unwrap().unwrap();
        let keys = store.load().unwrap();
        assert_eq!(keys.find(first.expose(), 10), KeyLookup::Unknown, "only one old secret stays valid");
        assert!([&second, &third].iter().all(|secret| keys.find(secret.expose(), 10) != KeyLookup::Unknown));
        assert!(store.rotate("key_none", 30).unwrap().is_none());
        store.revoke(&[record.id]).unwrap();
        let keys = store.load().unwrap();
        assert!([&second, &third].iter().all(|secret| keys.find(secret.expose(), 10) == KeyLookup::Unknown));
    }

    #[test]
    fn key_file_of_another_version_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        store.create(new(None), 5).unwrap();
        let text = std::fs::read_to_string(store.path()).unwrap().replace("\"version\": 1", "\"version\": 2");
        std::fs::write(store.path(), text).unwrap();
        assert!(store.load().unwrap_err().to_string().contains("version 2"));
    }

    #[test]
    fn scope_names_are_distinct_and_parse_back() {
        for scope in KeyScope::ALL {
            assert_eq!(KeyScope::from_name(scope.name()), Some(scope));
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.name());
        }
    }
}
