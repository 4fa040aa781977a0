//! Keys with which the client signs tokens. They use ES256, the usual algorithm of `DPoP` proofs (RFC 9449) and client
//! assertions.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use secrecy::SecretString;
use serde_json::{Value, json};

/// The name of the algorithm in metadata and headers.
pub(super) const ALGORITHM: &str = "ES256";

/// The first byte of an uncompressed public key, which contains both coordinates.
const UNCOMPRESSED: u8 = 4;

/// The length of a coordinate of the public key, in bytes.
const COORDINATE_BYTES: usize = 32;

/// A private key on the curve P-256, with which the client signs tokens.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    pkcs8: Vec<u8>,
}

impl SigningKey {
    /// Creates a new key.
    pub(super) fn generate() -> Result<Self, String> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        Self::of_pkcs8(made.map_err(|_| "haft cannot create a signing key")?.as_ref())
    }

    /// Reads a key in PEM. The error is a message for the operator and contains no part of the key.
    pub fn of_pem(pem: &str) -> Result<Self, String> {
        let is_content = |line: &&str| !line.trim_start().starts_with("-----");
        let text: String =
            pem.lines().filter(is_content).flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| "the private key is not in PEM format")?;
        Self::of_pkcs8(&bytes)
    }

    fn of_pkcs8(pkcs8: &[u8]) -> Result<Self, String> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new());
        let pair = pair.map_err(|_| "expected a private key in PKCS#8 on the curve P-256")?;
        Ok(Self { pair, pkcs8: pkcs8.to_owned() })
    }

    /// Returns the key in base64, as it is stored with its token.
    pub(super) fn stored(&self) -> SecretString {
        BASE64_STANDARD.encode(&self.pkcs8).into()
    }

    pub(super) fn of_stored(text: &str) -> Option<Self> {
        Self::of_pkcs8(&BASE64_STANDARD.decode(text).ok()?).ok()
    }

    /// Returns the public key as a JWK (RFC 7518, section 6.2).
    pub(super) fn public_jwk(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        debug_assert_eq!(point.first(), Some(&UNCOMPRESSED), "ring returns uncompressed points");
        let coordinate = |from: usize| {
            let bytes = point.get(from..from + COORDINATE_BYTES).unwrap_or_default();
            BASE64_URL_SAFE_NO_PAD.encode(bytes)
        };
        json!({ "kty": "EC", "crv": "P-256", "x": coordinate(1), "y": coordinate(1 + COORDINATE_BYTES) })
    }

    /// Signs a JWT. The header gets the name of the algorithm.
    pub(super) fn sign(&self, mut header: Value, claims: &Value) -> Result<String, String> {
        header["alg"] = ALGORITHM.into();
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(|_| "haft cannot sign the token")?;
        Ok(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature)))
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use secrecy::ExposeSecret;

    use super::*;

    /// Checks the signature with the public key `jwk`, and returns the header and the claims.
    pub(in crate::mcp::auth) fn verified(token: &str, jwk: &Value) -> (Value, Value) {
        let parts: Vec<&str> = token.split('.').collect();
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let value = |text: &str| serde_json::from_slice::<Value>(&decode(text)).unwrap();
        let coordinate = |name: &str| decode(jwk[name].as_str().unwrap());
        let point = [vec![UNCOMPRESSED], coordinate("x"), coordinate("y")].concat();
        let signed = format!("{}.{}", parts[0], parts[1]);
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        key.verify(signed.as_bytes(), &decode(parts[2])).unwrap();
        (value(parts[0]), value(parts[1]))
    }

    #[test]
    fn signed_token_verifies_with_the_public_key_of_the_stored_key() {
        let key = SigningKey::generate().unwrap();
        let token = key.sign(json!({"typ": "x"}), &json!({"a": 1})).unwrap();
        let again = SigningKey::of_stored(key.stored().expose_secret()).unwrap();
        let (header, claims) = verified(&token, &again.public_jwk());
        assert_eq!((header, claims), (json!({"typ": "x", "alg": "ES256"}), json!({"a": 1})));
    }

    #[test]
    fn p256_key_is_read_from_pem_and_invalid_text_is_rejected() {
        let key = SigningKey::generate().unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64_STANDARD.encode(&key.pkcs8)
        );
        assert_eq!(SigningKey::of_pem(&pem).unwrap().public_jwk(), key.public_jwk());
        for (pem, expected) in
            [("", "PKCS#8"), ("-----BEGIN X-----\nAAAA", "PKCS#8"), ("%", "not in PEM format")]
        {
            let error = SigningKey::of_pem(pem).unwrap_err();
            assert!(error.contains(expected), "{pem}: {error}");
        }
    }
}
