//! Encrypts ("seals") texts that a client keeps for the server, with a key of the server and for one owner.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use haft_core::principal::Principal;
use haft_store::seal_keys::{SealKey, SealKeyStore};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The prefix of an encrypted text, with the version of its format.
const MARK: &str = "haft1";

/// The reason why a text cannot be decrypted.
#[derive(Debug)]
pub(crate) enum UnsealError {
    /// This server did not encrypt the text for this owner, or the text was changed.
    Invalid,
    /// The key of the text was removed, or belongs to another server.
    UnknownKey,
    /// The keys cannot be read. The error contains the path of their file, which the client must not see.
    Keys,
}

/// Encrypts a text for its owner with the newest key.
pub(crate) fn seal(store: &SealKeyStore, owner: &Principal, text: &[u8], now_ms: u64) -> io::Result<String> {
    let key = store.newest(now_ms)?;
    let mut nonce = [0; NONCE_LEN];
    // After 2^32 texts, a random nonce has repeated with a probability of 2^-32; a key is used for one month only.
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| io::Error::other("the operating system returned no random bytes"))?;
    let mut sealed = text.to_vec();
    cipher(&key)?
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context(owner, &key.id)),
            &mut sealed,
        )
        .map_err(|_| io::Error::other("the text is too long to be encrypted"))?;
    let bytes = [nonce.as_slice(), &sealed].concat();
    Ok(format!("{MARK}.{}.{}", key.id, URL_SAFE_NO_PAD.encode(bytes)))
}

/// Decrypts a text that [`seal`] encrypted for this owner.
pub(crate) fn open(store: &SealKeyStore, owner: &Principal, text: &str) -> Result<Vec<u8>, UnsealError> {
    let mut parts = text.split('.');
    let (Some(MARK), Some(id), Some(bytes), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(UnsealError::Invalid);
    };
    let bytes = URL_SAFE_NO_PAD.decode(bytes).map_err(|_| UnsealError::Invalid)?;
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>().ok_or(UnsealError::Invalid)?;
    let key = store.find(id).map_err(|_| UnsealError::Keys)?.ok_or(UnsealError::UnknownKey)?;
    let mut sealed = sealed.to_vec();
    let opened = cipher(&key).map_err(|_| UnsealError::Keys)?.open_in_place(
        Nonce::assume_unique_for_key(*nonce),
        Aad::from(context(owner, id)),
        &mut sealed,
    );
    opened.map(|text| text.to_vec()).map_err(|_| UnsealError::Invalid)
}

fn cipher(key: &SealKey) -> io::Result<LessSafeKey> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key.expose());
    key.map(LessSafeKey::new).map_err(|_| io::Error::other("the encryption key has the wrong length"))
}

/// Returns the associated data of the encryption, so that a text can be decrypted only for its owner and with the id of
/// its key. It contains the lengths of the tenant and subject names: otherwise two owners whose joined names are equal,
/// such as `a` + `bc` and `ab` + `c`, could not be told apart.
fn context(owner: &Principal, id: &str) -> String {
    let (tenant, subject) = (owner.tenant(), owner.subject());
    format!("{MARK} {id} {} {tenant} {} {subject}", tenant.len(), subject.len())
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;

    use super::*;

    #[test]
    fn sealed_text_is_decrypted_only_if_unchanged_and_for_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let store = SealKeyStore::of(&Home::at(directory.path()));
        let owner = Principal::new("acme", "ann", "key_1");
        let sealed = seal(&store, &owner, b"the summary", 5).unwrap();
        assert!(!sealed.contains("summary") && sealed.starts_with("haft1."), "{sealed}");
        assert_ne!(
            sealed,
            seal(&store, &owner, b"the summary", 5).unwrap(),
            "each encryption uses a new nonce"
        );
        assert_eq!(open(&store, &owner, &sealed).unwrap(), b"the summary");
        let other_key = Principal::new("acme", "ann", "key_2");
        assert_eq!(open(&store, &other_key, &sealed).unwrap(), b"the summary");
        for stranger in [Principal::new("acme", "bob", "key_1"), Principal::new("other", "ann", "key_1")] {
            assert!(matches!(open(&store, &stranger, &sealed), Err(UnsealError::Invalid)));
        }
        let mut changed = sealed.clone().into_bytes();
        let last = changed.len() - 2;
        changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        for wrong in [changed.as_str(), "", "haft1", "haft1.a.b.c", "haft2.a.b", "haft1.x.AAAA"] {
            assert!(open(&store, &owner, wrong).is_err(), "{wrong}");
        }
        let unknown = sealed.replacen(sealed.split('.').nth(1).unwrap(), "00000000", 1);
        assert!(matches!(open(&store, &owner, &unknown), Err(UnsealError::UnknownKey)));
    }

    #[test]
    fn text_sealed_with_an_older_key_can_still_be_decrypted() {
        let directory = tempfile::tempdir().unwrap();
        let store = SealKeyStore::of(&Home::at(directory.path()));
        let owner = Principal::new("acme", "ann", "key_1");
        let year_ms = 365 * 24 * 3_600_000;
        let (old, new) =
            (seal(&store, &owner, b"old", 5).unwrap(), seal(&store, &owner, b"new", 5 + year_ms).unwrap());
        assert_ne!(old.split('.').nth(1), new.split('.').nth(1), "a year later, the store uses a new key");
        assert_eq!(open(&store, &owner, &old).unwrap(), b"old");
        assert_eq!(open(&store, &owner, &new).unwrap(), b"new");
    }
}
