//! The public keys of an issuer, as a JWK set (RFC 7517).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::RsaPublicKeyComponents;
use serde::Deserialize;
use serde_json::Value;

use super::jws::TokenAlgorithm;

/// The maximum number of keys of one issuer. A token without a key id is checked with each key that fits.
const KEYS_MAX: usize = 64;

/// A public key with which signatures are checked.
#[derive(Debug, Clone)]
pub(super) struct VerificationKey {
    pub(super) id: Option<String>,
    /// The only algorithm for which the issuer uses the key; `None` if the issuer names no algorithm.
    algorithm: Option<String>,
    pub(super) material: KeyMaterial,
}

/// The key itself, in the form that `ring` accepts.
#[derive(Debug, Clone)]
pub(super) enum KeyMaterial {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// The uncompressed curve point.
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Debug, Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct WrittenKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Parses a JWK set. Skips other kinds of keys, because an issuer may add them at any time.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<VerificationKey>, String> {
    let set: KeySet = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let written = set.keys.into_iter().filter_map(|key| serde_json::from_value::<WrittenKey>(key).ok());
    let keys: Vec<_> = written.filter_map(WrittenKey::read).take(KEYS_MAX).collect();
    if keys.is_empty() {
        Err("the key set of the token issuer has no key that can verify signatures".into())
    } else {
        Ok(keys)
    }
}

impl VerificationKey {
    pub(super) fn may_sign(&self, algorithm: TokenAlgorithm) -> bool {
        let is_named = self.algorithm.as_ref().is_none_or(|only| {
            only == algorithm.name() || (only == "Ed25519" && algorithm == TokenAlgorithm::EdDsa)
        });
        let is_of_kind = match algorithm {
            TokenAlgorithm::Es256 => matches!(self.material, KeyMaterial::P256(_)),
            TokenAlgorithm::Es384 => matches!(self.material, KeyMaterial::P384(_)),
            TokenAlgorithm::EdDsa => matches!(self.material, KeyMaterial::Ed25519(_)),
            TokenAlgorithm::Rs256
            | TokenAlgorithm::Rs384
            | TokenAlgorithm::Rs512
            | TokenAlgorithm::Ps256
            | TokenAlgorithm::Ps384
            | TokenAlgorithm::Ps512 => matches!(self.material, KeyMaterial::Rsa(_)),
        };
        is_named && is_of_kind
    }
}

impl WrittenKey {
    fn read(self) -> Option<VerificationKey> {
        if self.purpose.as_ref().is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let material = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => KeyMaterial::Rsa(RsaPublicKeyComponents {
                n: integer(self.n.as_ref())?,
                e: integer(self.e.as_ref())?,
            }),
            ("EC", Some("P-256")) => KeyMaterial::P256(point(self.x.as_ref(), self.y.as_ref(), 32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(self.x.as_ref(), self.y.as_ref(), 48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes(self.x.as_ref())?),
            _ => return None,
        };
        Some(VerificationKey { id: self.kid, algorithm: self.alg, material })
    }
}

fn bytes(text: Option<&String>) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text?).ok()
}

/// Decodes an integer without leading zero bytes: some issuers write one, and `ring` does not accept it.
fn integer(text: Option<&String>) -> Option<Vec<u8>> {
    Some(bytes(text)?.into_iter().skip_while(|byte| *byte == 0).collect())
}

fn point(x: Option<&String>, y: Option<&String>, length: usize) -> Option<Vec<u8>> {
    let (x, y) = (bytes(x)?, bytes(y)?);
    (x.len() == length && y.len() == length).then(|| [&[4_u8][..], &x, &y].concat())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_of_unsupported_kinds_are_skipped() {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let count =
            |keys: Value| parse(json!({ "keys": keys }).to_string().as_bytes()).map(|keys| keys.len());
        let good = json!({"kty": "OKP", "crv": "Ed25519", "x": x});
        assert_eq!(count(json!([good.clone()])), Ok(1));
        let secret = json!({"kty": "oct", "k": x});
        let encryption = json!({"kty": "OKP", "crv": "Ed25519", "x": x, "use": "enc"});
        let short = json!({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"});
        let unknown = json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"});
        assert_eq!(count(json!([7, secret, encryption, short, unknown, good.clone()])), Ok(1));
        assert!(count(json!([{"kty": "oct", "k": x}])).is_err());
        assert_eq!(count(json!(vec![good; 200])), Ok(KEYS_MAX));
    }
}
