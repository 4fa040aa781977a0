//! Checks the tokens that a client signs: proofs that it has a private key (`DPoP`, RFC 9449) and client assertions
//! (RFC 7523).

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The maximum time for which an assertion may be valid, in seconds.
const ASSERTION_SECONDS_MAX: u64 = 60;

/// The maximum difference between the time of a proof and the time of the check, in seconds.
const PROOF_SECONDS_MAX: u64 = 60;

/// The client's registered key, and the state of the checks.
#[derive(Debug)]
pub(crate) struct ClientProofs {
    /// The private key that the client signs assertions with, in PEM.
    pub(crate) pem: String,
    public_key: Vec<u8>,
    /// The ids of all accepted tokens. Each may be used once.
    ids: HashSet<String>,
    /// The number in the nonce that a proof for the MCP server must contain. The number changes after each accepted
    /// request.
    round: u32,
    /// The public key that the access token is bound to.
    bound_to: Value,
}

/// The request that a proof must name.
pub(crate) struct ProvedRequest<'a> {
    pub(crate) method: &'a str,
    pub(crate) address: String,
    /// The access token in the request; `None` at the token endpoint.
    pub(crate) token: Option<&'a str>,
}

/// The reason why a proof is not accepted.
#[derive(Debug)]
pub(crate) enum ProofError {
    /// The proof must have this nonce.
    Nonce(String),
    Wrong(String),
}

impl ClientProofs {
    pub(crate) fn new() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let text = STANDARD.encode(document.as_ref());
        Self {
            pem: format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n"),
            public_key: pair.public_key().as_ref().to_owned(),
            ids: HashSet::new(),
            round: 0,
            bound_to: Value::Null,
        }
    }

    /// Checks an assertion of the client `robot` for this issuer.
    pub(crate) fn check_assertion(&mut self, assertion: &str, issuer: &str) -> Result<(), String> {
        let (_, claims) = verified(assertion, |_| Some(self.public_key.clone()))?;
        let names = json!([claims["iss"], claims["sub"], claims["aud"]]);
        expect(names == json!(["robot", "robot", issuer]), || {
            format!("`iss`, `sub` or `aud` of the assertion is wrong: {names}")
        })?;
        let seconds_left = claims["exp"].as_u64().unwrap_or_default().saturating_sub(now());
        expect((1..=ASSERTION_SECONDS_MAX).contains(&seconds_left), || {
            format!("`exp` of the assertion is out of range: {claims}")
        })?;
        self.use_id(&claims)
    }

    /// Checks the proof of a request. If the request asks for a token, binds this token to the key of the proof.
    pub(crate) fn check_proof(&mut self, proof: &str, request: &ProvedRequest<'_>) -> Result<(), ProofError> {
        let (header, claims) = verified(proof, |header| point(&header["jwk"])).map_err(ProofError::Wrong)?;
        self.check_claims(&header, &claims, request).map_err(ProofError::Wrong)?;
        let nonce = format!("nonce-{}-{}", if request.token.is_some() { "mcp" } else { "token" }, self.round);
        if claims["nonce"] != nonce.as_str() {
            return Err(ProofError::Nonce(nonce));
        }
        match request.token {
            Some(_) => self.round += 1,
            None => self.bound_to = header["jwk"].clone(),
        }
        Ok(())
    }

    fn check_claims(
        &mut self,
        header: &Value,
        claims: &Value,
        request: &ProvedRequest<'_>,
    ) -> Result<(), String> {
        let ProvedRequest { method, address, token } = request;
        expect(header["typ"] == "dpop+jwt", || format!("`typ` of the proof is wrong: {header}"))?;
        expect(claims["htm"] == *method, || {
            format!("`htm` of the proof is wrong: {claims}; expected {method}")
        })?;
        expect(claims["htu"] == address.as_str(), || {
            format!("`htu` of the proof is wrong: {claims}; expected {address}")
        })?;
        let age = claims["iat"].as_u64().unwrap_or_default().abs_diff(now());
        expect(age <= PROOF_SECONDS_MAX, || format!("`iat` of the proof is not the current time: {claims}"))?;
        let digest = token.map(|token| URL_SAFE_NO_PAD.encode(Sha256::digest(token)));
        expect(claims["ath"].as_str() == digest.as_deref(), || {
            format!("`ath` of the proof is not the digest of the token: {claims}")
        })?;
        let is_bound = token.is_none() || header["jwk"] == self.bound_to;
        expect(is_bound, || format!("the token is bound to another key: {}", self.bound_to))?;
        self.use_id(claims)
    }

    fn use_id(&mut self, claims: &Value) -> Result<(), String> {
        let id = claims["jti"].as_str().unwrap_or_default().to_owned();
        expect(!id.is_empty() && self.ids.insert(id), || {
            format!("`jti` of the token is missing or was already used: {claims}")
        })
    }
}

fn expect(holds: bool, describe: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(describe()) }
}

/// Verifies the signature with the key that `key` returns for the header. Returns the header and the claims.
fn verified(token: &str, key: impl FnOnce(&Value) -> Option<Vec<u8>>) -> Result<(Value, Value), String> {
    let invalid = || format!("the text is not a signed token: {token}");
    let (signed, signature) = token.rsplit_once('.').ok_or_else(invalid)?;
    let (header, claims) = signed.split_once('.').ok_or_else(invalid)?;
    let part = |text: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        serde_json::from_slice::<Value>(&bytes).ok()
    };
    let (header, claims) = part(header).zip(part(claims)).ok_or_else(invalid)?;
    let key = key(&header).filter(|_| header["alg"] == "ES256").ok_or_else(invalid)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| invalid())?;
    let verified =
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(signed.as_bytes(), &signature);
    verified.map_err(|_| format!("the signature of {claims} is not valid"))?;
    Ok((header, claims))
}

/// Returns the public key of a JWK as an uncompressed point.
fn point(jwk: &Value) -> Option<Vec<u8>> {
    let coordinate = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok();
    Some([vec![4], coordinate("x")?, coordinate("y")?].concat())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}
