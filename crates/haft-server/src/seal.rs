//! Texts that a client keeps for the server and cannot read: sealed with a key of the server, for one owner.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use haft_core::principal::Principal;
use haft_store::seal_keys::{SealKey, SealKeyStore};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The beginning of a sealed text, with the version of its form.
const MARK: &str = "haft1";

/// The reason why a sealed text cannot be opened.
#[derive(Debug)]
pub(crate) enum UnsealError {
    /// It is not a sealed text of this server and this owner, or it was changed.
    Invalid,
    /// Its key is not kept any more, or belongs to another server.
    UnknownKey,
    /// The keys cannot be read. The reason holds the path of their file, which is none of the client's business.
    Keys,
}

/// Seals a text for its owner with the newest key.
pub(crate) fn seal(store: &SealKeyStore, owner: &Principal, text: &[u8], now_ms: u64) -> io::Result<String> {
    let key = store.newest(now_ms)?;
    let mut nonce = [0; NONCE_LEN];
    // A random nonce repeats with a chance of 2^-32 after 2^32 texts; a key lives for a month.
    SystemRandom::new().fill(&mut nonce).map_err(|_| io::Error::other("no random numbers"))?;
    let mut sealed = text.to_vec();
    cipher(&key)?
        .seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context(owner, &key.id)),
            &mut sealed,
        )
        .map_err(|_| io::Error::other("the text is too long to be sealed"))?;
    let bytes = [nonce.as_slice(), &sealed].concat();
    Ok(format!("{MARK}.{}.{}", key.id, URL_SAFE_NO_PAD.encode(bytes)))
}

/// Opens a text that [`seal`] made for the same owner.
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
    key.map(LessSafeKey::new).map_err(|_| io::Error::other("the key has the wrong length"))
}

/// A text opens only for its owner and under the id of its key. The lengths keep two owners apart whose names together are
/// the same.
fn context(owner: &Principal, id: &str) -> String {
    let (tenant, subject) = (owner.tenant(), owner.subject());
    format!("{MARK} {id} {} {tenant} {} {subject}", tenant.len(), subject.len())
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;

    use super::*;

    #[test]
    fn a_text_opens_for_its_owner_only_and_unchanged_only() {
        let directory = tempfile::tempdir().unwrap();
        let store = SealKeyStore::of(&Home::at(directory.path()));
        let owner = Principal::new("acme", "ann", "key_1");
        let sealed = seal(&store, &owner, b"the summary", 5).unwrap();
        assert!(!sealed.contains("summary") && sealed.starts_with("haft1."), "{sealed}");
        assert_ne!(sealed, seal(&store, &owner, b"the summary", 5).unwrap(), "each has a nonce of its own");
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
    fn a_text_of_an_older_key_still_opens() {
        let directory = tempfile::tempdir().unwrap();
        let store = SealKeyStore::of(&Home::at(directory.path()));
        let owner = Principal::new("acme", "ann", "key_1");
        let year_ms = 365 * 24 * 3_600_000;
        let (old, new) =
            (seal(&store, &owner, b"old", 5).unwrap(), seal(&store, &owner, b"new", 5 + year_ms).unwrap());
        assert_ne!(old.split('.').nth(1), new.split('.').nth(1), "another key");
        assert_eq!(open(&store, &owner, &old).unwrap(), b"old");
        assert_eq!(open(&store, &owner, &new).unwrap(), b"new");
    }
}
