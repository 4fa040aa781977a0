//! Signed tokens: parses their three parts, and checks their signature.
//!
//! This module supports only signatures with a public key. It refuses tokens without a signature and tokens with an
//! HMAC, because their algorithms are not in the table. (For an HMAC, an attacker could use the public key as the
//! secret.)

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{self, RsaParameters};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::TokenError;
use super::jwks::{KeyMaterial, VerificationKey};

/// A token whose signature is not checked yet.
#[derive(Debug)]
pub(super) struct SignedToken<'a> {
    header: TokenHeader,
    pub(super) algorithm: TokenAlgorithm,
    claims: Map<String, Value>,
    /// The part that is signed.
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Debug, Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
}

/// The algorithms that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

haft_core::name_table!(TokenAlgorithm {
    Rs256: "RS256",
    Rs384: "RS384",
    Rs512: "RS512",
    Ps256: "PS256",
    Ps384: "PS384",
    Ps512: "PS512",
    Es256: "ES256",
    Es384: "ES384",
    EdDsa: "EdDSA",
});

/// The token types that are access tokens, or that cannot be distinguished from them. Logout tokens and proofs have
/// other types, and must not be accepted for a login.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

impl<'a> SignedToken<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, TokenError> {
        let broken = || TokenError::invalid("the access token is not a signed JWT");
        let (signed, signature) = text.rsplit_once('.').ok_or_else(broken)?;
        let (header, claims) = signed.split_once('.').ok_or_else(broken)?;
        let decoded = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| broken());
        let header: TokenHeader = serde_json::from_slice(&decoded(header)?).map_err(|_| broken())?;
        let claims = serde_json::from_slice(&decoded(claims)?).map_err(|_| broken())?;
        let algorithm = header.accepted()?;
        Ok(Self { header, algorithm, claims, signed, signature: decoded(signature)? })
    }

    /// Returns the issuer that the token names. The signature is not checked yet, so this is only a claim.
    pub(super) fn claimed_issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }

    /// Returns true if this key could have signed the token. A token that names no key matches every key id.
    pub(super) fn fits(&self, key: &VerificationKey) -> bool {
        let same_id = self.header.kid.is_none() || self.header.kid == key.id;
        same_id && key.may_sign(self.algorithm)
    }

    /// Returns the claims if one of the keys signed them.
    pub(super) fn verify(self, keys: &[VerificationKey]) -> Result<Map<String, Value>, TokenError> {
        let mut fitting = keys.iter().filter(|key| self.fits(key)).peekable();
        if fitting.peek().is_none() {
            return Err(TokenError::invalid("the issuer has no key with the id and algorithm of this token"));
        }
        let message = self.signed.as_bytes();
        if fitting.any(|key| verifies(&key.material, self.algorithm, message, &self.signature)) {
            return Ok(self.claims);
        }
        Err(TokenError::invalid("the signature of the access token is wrong"))
    }
}

impl TokenHeader {
    fn accepted(&self) -> Result<TokenAlgorithm, TokenError> {
        // RFC 7515, section 4.1.11: a reader that does not support such an extension must refuse the token.
        if self.crit.is_some() {
            return Err(TokenError::invalid(
                "the access token has extensions (`crit`) that are not supported",
            ));
        }
        let is_usual = |kind: &String| TYPES.iter().any(|usual| kind.eq_ignore_ascii_case(usual));
        if !self.typ.as_ref().is_none_or(is_usual) {
            return Err(TokenError::invalid("the JWT is not an access token (header `typ`)"));
        }
        TokenAlgorithm::from_name(&self.alg)
            // RFC 9864 uses this name for the same algorithm.
            .or_else(|| (self.alg == "Ed25519").then_some(TokenAlgorithm::EdDsa))
            .ok_or_else(|| {
                let names = TokenAlgorithm::ALL.map(TokenAlgorithm::name).join(", ");
                TokenError::invalid(format!("the access token must be signed with one of {names}"))
            })
    }
}

/// Checks a signature. The key type and the algorithm must match, so that no key is used with another algorithm.
fn verifies(key: &KeyMaterial, algorithm: TokenAlgorithm, message: &[u8], signature: &[u8]) -> bool {
    let raw = |kind: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
        signature::UnparsedPublicKey::new(kind, key).verify(message, signature).is_ok()
    };
    match (key, algorithm) {
        (KeyMaterial::Rsa(key), algorithm) => rsa_parameters(algorithm)
            .is_some_and(|parameters| key.verify(parameters, message, signature).is_ok()),
        (KeyMaterial::P256(key), TokenAlgorithm::Es256) => raw(&signature::ECDSA_P256_SHA256_FIXED, key),
        (KeyMaterial::P384(key), TokenAlgorithm::Es384) => raw(&signature::ECDSA_P384_SHA384_FIXED, key),
        (KeyMaterial::Ed25519(key), TokenAlgorithm::EdDsa) => raw(&signature::ED25519, key),
        (KeyMaterial::P256(_) | KeyMaterial::P384(_) | KeyMaterial::Ed25519(_), _) => false,
    }
}

/// Returns the parameters for an RSA algorithm. They reject keys of fewer than 2048 bits.
fn rsa_parameters(algorithm: TokenAlgorithm) -> Option<&'static RsaParameters> {
    match algorithm {
        TokenAlgorithm::Rs256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        TokenAlgorithm::Rs384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        TokenAlgorithm::Rs512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        TokenAlgorithm::Ps256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        TokenAlgorithm::Ps384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        TokenAlgorithm::Ps512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        TokenAlgorithm::Es256 | TokenAlgorithm::Es384 | TokenAlgorithm::EdDsa => None,
    }
}

#[cfg(test)]
mod tests;
