//! Reads the image in a file, for models that accept images.

use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_core::media;

use super::path::shown;
use super::protocol::{FileError, FileImage};
use super::text_file::{LoadError, SymlinkHandling, open};

/// The maximum size of an image that `read` returns, in bytes. Common model providers reject larger images.
pub const IMAGE_BYTES_MAX: u64 = 5 << 20;

/// The number of bytes that are enough to recognise the image format.
const HEADER_BYTES: u64 = 64;

/// Returns the image in a file; `None` if the file does not begin like a PNG, JPEG, GIF or WebP image.
pub(super) fn load(path: &str) -> Result<Option<FileImage>, FileError> {
    let file_error = |error: LoadError| error.file_error(path);
    let file = open(Path::new(path), SymlinkHandling::Follow).map_err(file_error)?;
    let mut bytes = Vec::new();
    (&file).take(HEADER_BYTES).read_to_end(&mut bytes).map_err(|error| file_error(error.into()))?;
    let Some(media_type) = media::sniff(&bytes).filter(|kind| kind.starts_with("image/")) else {
        return Ok(None);
    };
    let rest = IMAGE_BYTES_MAX + 1 - bytes.len() as u64;
    (&file).take(rest).read_to_end(&mut bytes).map_err(|error| file_error(error.into()))?;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        return Err(FileError::failed(format!(
            "Error reading {}: the image has more than the {IMAGE_BYTES_MAX} bytes allowed; use bash to make a \
             smaller copy",
            shown(path)
        )));
    }
    Ok(Some(FileImage { media_type: media_type.into(), base64: STANDARD.encode(&bytes) }))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::files::fixture::FileFixture;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0";

    #[test]
    fn only_images_are_loaded_from_binary_files() {
        let fixture = FileFixture::new();
        let image = load(&fixture.file("picture.txt", PNG)).unwrap().unwrap();
        assert_eq!((image.media_type.as_str(), image.base64), ("image/png", STANDARD.encode(PNG)));
        assert_eq!(load(&fixture.file("program", b"\x7fELF\0\0")), Ok(None));
        assert_eq!(load(&fixture.file("sound", b"RIFF\0\0\0\0WAVE")), Ok(None));
    }

    #[test]
    fn oversized_image_is_refused_with_the_limit() {
        let fixture = FileFixture::new();
        let path = fixture.file("large.png", PNG);
        File::options().write(true).open(&path).unwrap().set_len(IMAGE_BYTES_MAX + 1).unwrap();
        let error = load(&path).unwrap_err();
        assert!(error.message.contains("more than the 5242880 bytes allowed"), "{}", error.message);
    }
}
