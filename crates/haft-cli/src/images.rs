//! Reads the images that the command line names.

use std::io::Read;
use std::path::Path;

use haft_core::conversation::{Media, MediaSource};
use haft_core::media;

use super::cli_error::CliError;

/// The maximum size of an image that haft sends, in bytes.
const IMAGE_BYTES_MAX: u64 = 20 * 1024 * 1024;

/// Reads an image. Determines the format from the first bytes, because the file name may be wrong.
pub(super) fn image(path: &Path) -> Result<Media, CliError> {
    let refused = |reason: String| CliError::input(format!("{}: {reason}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| refused(error.to_string()))?;
    let mut bytes = Vec::new();
    file.take(IMAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| refused(error.to_string()))?;
    if bytes.len() as u64 > IMAGE_BYTES_MAX {
        let mebibytes = IMAGE_BYTES_MAX >> 20;
        let problem = refused(format!("the image has more than {mebibytes} MiB"));
        return Err(problem.with_hint("make the image smaller"));
    }
    let media_type = media::sniff(&bytes).filter(|kind| kind.starts_with("image/"));
    let media_type = media_type.ok_or_else(|| {
        refused("the image format is unknown".into()).with_hint("use a PNG, JPEG, GIF or WebP image")
    })?;
    Ok(Media { media_type: media_type.into(), source: MediaSource::Bytes(bytes.into()) })
}
