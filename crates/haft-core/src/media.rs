//! Media types and image sizes, read from the headers of binary data.

/// Returns the media type that the magic bytes at the start indicate.
pub fn sniff(bytes: &[u8]) -> Option<&'static str> {
    let starts = |magic: &[u8]| bytes.starts_with(magic);
    let inside = |at: usize, magic: &[u8]| bytes.get(at..at + magic.len()) == Some(magic);
    match () {
        () if starts(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        () if starts(b"\xff\xd8\xff") => Some("image/jpeg"),
        () if starts(b"GIF87a") || starts(b"GIF89a") => Some("image/gif"),
        () if starts(b"RIFF") && inside(8, b"WEBP") => Some("image/webp"),
        () if starts(b"RIFF") && inside(8, b"WAVE") => Some("audio/wav"),
        () if starts(b"ID3") || starts(b"\xff\xfb") => Some("audio/mpeg"),
        () if starts(b"OggS") => Some("audio/ogg"),
        () if starts(b"fLaC") => Some("audio/flac"),
        () if starts(b"%PDF-") => Some("application/pdf"),
        () if starts(b"PK\x03\x04") => Some("application/zip"),
        () if starts(b"\x1f\x8b") => Some("application/gzip"),
        () if starts(b"\x7fELF") => Some("application/x-executable"),
        () => None,
    }
}

/// Returns the width and height of a PNG, JPEG, GIF or WebP image.
pub fn dimensions(bytes: &[u8]) -> Option<(u32, u32)> {
    match sniff(bytes)? {
        "image/png" => Some((be32(bytes, 16)?, be32(bytes, 20)?)),
        "image/gif" => Some((le16(bytes, 6)?, le16(bytes, 8)?)),
        "image/jpeg" => jpeg(bytes),
        "image/webp" => webp(bytes),
        _ => None,
    }
}

/// Returns true if the bytes are not text: they start with known magic bytes, or contain a NUL near the start.
pub fn is_binary(bytes: &[u8]) -> bool {
    sniff(bytes).is_some() || bytes.iter().take(SNIFF_BYTES).any(|byte| *byte == 0)
}

/// The length of the prefix that is searched for a NUL byte. A binary file nearly always has a NUL in this prefix.
const SNIFF_BYTES: usize = 8 << 10;

/// The maximum number of JPEG segments to skip before the frame header. Real files have about a dozen.
const JPEG_SEGMENTS_MAX: usize = 200;

fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    for _ in 0..JPEG_SEGMENTS_MAX {
        let (mark, kind) = (*bytes.get(at)?, *bytes.get(at + 1)?);
        if mark != 0xff {
            return None;
        }
        match kind {
            // The JPEG markers SOF0 to SOF15 start a frame header, which has the image size. The range also contains
            // the markers DHT, JPG and DAC, which start no frame header.
            0xc0..=0xcf if !matches!(kind, 0xc4 | 0xc8 | 0xcc) => {
                return Some((be16(bytes, at + 7)?, be16(bytes, at + 5)?));
            }
            // JPEG allows any number of fill bytes (0xff) before a marker.
            0xff => at += 1,
            _ => at += 2 + be16(bytes, at + 2)? as usize,
        }
    }
    None
}

fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => Some((le16(bytes, 26)? & 0x3fff, le16(bytes, 28)? & 0x3fff)),
        b"VP8L" => {
            let bits = le16(bytes, 21)? | (le16(bytes, 23)? << 16);
            Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
        }
        b"VP8X" => Some((le24(bytes, 24)? + 1, le24(bytes, 27)? + 1)),
        _ => None,
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    let pair = bytes.get(at..at.checked_add(2)?)?;
    Some(u32::from(pair[0]) << 8 | u32::from(pair[1]))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(be16(bytes, at)? << 16 | be16(bytes, at + 2)?)
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    be16(bytes, at).map(|pair| (pair & 0xff) << 8 | pair >> 8)
}

fn le24(bytes: &[u8], at: usize) -> Option<u32> {
    Some(le16(bytes, at)? | u32::from(*bytes.get(at + 2)?) << 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn image_type_and_dimensions_are_read_from_the_header() {
        let check = |parts: &[&[u8]], kind: &str, expected: (u32, u32)| {
            let bytes = parts.concat();
            assert_eq!((sniff(&bytes), dimensions(&bytes)), (Some(kind), Some(expected)));
            for cut in 0..bytes.len() {
                let _ = dimensions(&bytes[..cut]);
            }
        };
        let png_start: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        check(&[png_start, &640u32.to_be_bytes(), &480u32.to_be_bytes()], "image/png", (640, 480));
        check(&[b"GIF89a", &640u16.to_le_bytes(), &480u16.to_le_bytes()], "image/gif", (640, 480));
        let jpeg_start: &[u8] = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x11\x08";
        check(&[jpeg_start, &480u16.to_be_bytes(), &640u16.to_be_bytes()], "image/jpeg", (640, 480));
        let lossy: &[u8] = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a";
        check(&[lossy, &640u16.to_le_bytes(), &480u16.to_le_bytes()], "image/webp", (640, 480));
        let lossless = (640u32 - 1) | (480 - 1) << 14;
        check(&[b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f", &lossless.to_le_bytes()], "image/webp", (640, 480));
        let extended: &[u8] = b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0";
        check(&[extended, &639u32.to_le_bytes()[..3], &479u32.to_le_bytes()[..3]], "image/webp", (640, 480));
    }

    #[test]
    fn is_binary_distinguishes_text_from_binary() {
        let check = |bytes: &[u8], expected: bool| assert_eq!(is_binary(bytes), expected, "{bytes:?}");
        check(b"", false);
        check("wörds\n".as_bytes(), false);
        check(b"caf\xe9 in latin-1", false);
        check(b"a\0b", true);
        check(b"%PDF-1.7 is text at first", true);
    }

    proptest! {
        #[test]
        fn reading_dimensions_of_any_bytes_never_panics(bytes: Vec<u8>, magic in 0usize..5) {
            let starts: [&[u8]; 5] =
                [b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF\0\0\0\0WEBPVP8L", b""];
            let _ = dimensions(&[starts[magic], &bytes].concat());
        }
    }
}
