//! Searches texts for a secret in all encodings in which a program may leak it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// Returns true if a text contains a secret as it is, in base64, or percent-encoded.
pub fn reveals(text: &str, secret: &str) -> bool {
    encoded_forms(secret).iter().any(|form| text.contains(form))
}

fn encoded_forms(secret: &str) -> Vec<String> {
    let mut forms = vec![secret.to_owned()];
    // The secret can begin at any of three positions in a group of base64. Leave out the characters at both ends that
    // also depend on the bytes around it.
    for before in 0..3 {
        let bytes = ["\0".repeat(before).as_bytes(), secret.as_bytes()].concat();
        let start = (before * 4).div_ceil(3);
        let end = bytes.len() / 3 * 4;
        forms.extend(
            [STANDARD.encode(&bytes), URL_SAFE.encode(&bytes)].map(|text| text[start..end].to_owned()),
        );
    }
    let all = |byte: u8| format!("%{byte:02X}");
    let reserved = |byte: u8| {
        if byte.is_ascii_alphanumeric() || byte == b'-' { char::from(byte).into() } else { all(byte) }
    };
    let encoded: String = secret.bytes().map(reserved).collect();
    forms.extend([encoded.to_lowercase(), encoded, secret.bytes().map(all).collect()]);
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "canary-of-the-operator+1f9a=";

    #[test]
    fn encoded_secrets_are_recognized_at_every_position() {
        for before in 0..4 {
            let text = format!("{}{SECRET}, and more", "x".repeat(before));
            let encoded = STANDARD.encode(&text);
            assert!(reveals(&encoded, SECRET), "{before}: {encoded}");
        }
        assert!(reveals("?key=canary-of-the-operator%2B1f9a%3D", SECRET));
        assert!(reveals("?key=canary-of-the-operator%2b1f9a%3d", SECRET));
        assert!(!reveals("canary-of-the-operator", SECRET));
    }
}
