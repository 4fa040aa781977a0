use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde_json::{Value, json};

use super::*;
use crate::token::jwks;

/// Returns tokens and keys that another implementation created.
fn vectors() -> (Vec<VerificationKey>, Value) {
    let vectors: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    (jwks::parse(vectors["jwks"].to_string().as_bytes()).unwrap(), vectors["tokens"].clone())
}

fn verified(token: &str, keys: &[VerificationKey]) -> Result<Map<String, Value>, TokenError> {
    SignedToken::parse(token)?.verify(keys)
}

#[track_caller]
fn refused(token: &str, expected: &str) {
    match verified(token, &vectors().0) {
        Err(TokenError::Invalid(text)) if text.contains(expected) => {}
        other => panic!("{token}: {other:?}"),
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

#[test]
fn tokens_signed_by_another_implementation_are_valid() {
    let (keys, tokens) = vectors();
    for algorithm in TokenAlgorithm::ALL {
        let token = tokens[algorithm.name()].as_str().unwrap();
        let claims = verified(token, &keys).unwrap_or_else(|error| panic!("{algorithm:?}: {error:?}"));
        assert_eq!(claims["iss"], "https://a.example");
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let mut changed = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        changed[7] ^= 1;
        refused(&format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(changed)), "signature");
        refused(&format!("{signed}."), "signature");
        let (header, _) = signed.split_once('.').unwrap();
        let claims = BASE64_URL_SAFE_NO_PAD.encode(r#"{"iss":"https://a.example","admin":true}"#);
        refused(&format!("{header}.{claims}.{signature}"), "signature");
    }
}

#[test]
fn unsigned_tokens_and_tokens_signed_with_the_public_key_are_refused() {
    let vectors: Value = serde_json::from_str(include_str!("vectors.json")).unwrap();
    let tokens = &vectors["tokens"];
    for algorithm in ["none", "None", "NONE", "", "HS256", "HS512", "RS1", "rs256", "ES256K", "dir"] {
        let signed =
            unsigned(&json!({ "alg": algorithm, "kid": "rsa" }), &json!({"iss": "https://a.example"}));
        refused(&format!("{signed}."), "must be signed with one of");
        refused(&format!("{signed}.AAAA"), "must be signed with one of");
    }
    // In a known attack, the published public key is used as the secret of an HMAC.
    let key = vectors["jwks"]["keys"][0].to_string();
    let signed = unsigned(&json!({"alg": "HS256", "kid": "rsa"}), &json!({"iss": "https://a.example"}));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), signed.as_bytes());
    refused(&format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag)), "must be signed with one of");
    // A signature of one algorithm must not be valid for another algorithm of the same key.
    let signature = tokens["RS256"].as_str().unwrap().rsplit_once('.').unwrap().1;
    let other = tokens["PS256"].as_str().unwrap().rsplit_once('.').unwrap().0;
    refused(&format!("{other}.{signature}"), "signature");
}

#[test]
fn short_keys_and_keys_of_another_type_or_id_verify_no_token() {
    let (keys, tokens) = vectors();
    refused(tokens["small"].as_str().unwrap(), "signature");
    let header = |kid: &str| unsigned(&json!({"alg": "ES256", "kid": kid}), &json!({}));
    for kid in ["rsa", "p384", "ed", "unknown"] {
        refused(&format!("{}.AAAA", header(kid)), "no key with the id and algorithm");
    }
    let only_one = |key: &VerificationKey| key.id.as_deref() != Some("p256");
    let others: Vec<_> = keys.into_iter().filter(only_one).collect();
    assert!(verified(tokens["ES256"].as_str().unwrap(), &others).is_err());
}

#[test]
fn tokens_with_extensions_or_for_other_purposes_are_refused() {
    let header = |more: Value| {
        let mut header = json!({"alg": "ES256", "kid": "p256"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{}.AAAA", unsigned(&header, &json!({})))
    };
    refused(&header(json!({"crit": ["b64"], "b64": false})), "crit");
    refused(&header(json!({"crit": []})), "crit");
    refused(&header(json!({"typ": "logout+jwt"})), "not an access token");
    refused(&header(json!({"typ": "dpop+jwt"})), "not an access token");
    for usual in ["JWT", "at+jwt", "application/at+jwt"] {
        refused(&header(json!({ "typ": usual })), "signature");
    }
}

#[test]
fn malformed_tokens_are_refused() {
    let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256"}"#);
    let twice = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","alg":"none"}"#);
    for token in [
        "",
        "..",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "haft_1",
        &format!("{header}.e30"),
        &format!("{header}.W10.AA"),
        &format!("{header}.e30=.AA"),
        &format!("{twice}.e30.AA"),
        &format!("{header}.e30.A A"),
    ] {
        refused(token, "not a signed JWT");
    }
}
