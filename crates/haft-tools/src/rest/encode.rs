//! Text made safe for a URL.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986.
const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Leaves reserved characters that have no meaning of their own inside a query.
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

/// Nothing in the text can end the part of the URL it stands in.
pub(super) fn strict(text: &str) -> String {
    utf8_percent_encode(text, STRICT).to_string()
}

/// For parameters that say `allowReserved`: still nothing ends the pair.
pub(super) fn reserved_kept(text: &str) -> String {
    utf8_percent_encode(text, RESERVED_KEPT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_its_part_of_the_url() {
        assert_eq!(strict("a b/c?d#e&f=g+h%i\r\nü~"), "a%20b%2Fc%3Fd%23e%26f%3Dg%2Bh%25i%0D%0A%C3%BC~");
        assert_eq!(reserved_kept("a/b?c#d&e=f+g"), "a/b?c%23d%26e%3Df%2Bg");
    }
}
