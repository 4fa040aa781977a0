//! Percent-encoding of text for URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters to encode: all except the unreserved ones of RFC 3986.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters to encode with `allowReserved`: those of `STRICT`, except the reserved characters that do not delimit
/// the pairs of a query.
const RESERVED_KEPT: &AsciiSet = &STRICT
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'[')
    .remove(b']')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';');

/// Encodes text so that it cannot end the URL component that contains it.
pub(super) fn strict(text: &str) -> String {
    utf8_percent_encode(text, STRICT).to_string()
}

/// Encodes a parameter with `allowReserved`. The text still cannot end its `name=value` pair.
pub(super) fn reserved_kept(text: &str) -> String {
    utf8_percent_encode(text, RESERVED_KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_delimiters_in_values_are_percent_encoded() {
        assert_eq!(strict("a b/c?d#e&f=g+h%i\r\nü~"), "a%20b%2Fc%3Fd%23e%26f%3Dg%2Bh%25i%0D%0A%C3%BC~");
        assert_eq!(reserved_kept("a/b?c#d&e=f+g"), "a/b?c%23d%26e%3Df%2Bg");
    }
}
