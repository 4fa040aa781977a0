//! Reads lines with a maximum length, and continues after a line that is too long.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GatewayLine {
    Text(String),
    /// The line was longer than the limit and was skipped.
    TooLong,
}

/// Reads the next line without its end; returns `None` at the end of the input. Replaces bytes that are not UTF-8; the
/// JSON parser then reports the line.
pub(super) async fn next_line(
    input: &mut (impl AsyncBufRead + Unpin),
    bytes_max: usize,
) -> io::Result<Option<GatewayLine>> {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let available = input.fill_buf().await?;
        if available.is_empty() {
            return Ok((!line.is_empty() || is_too_long).then(|| finished(line, is_too_long)));
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        if line.len() + part.len() > bytes_max {
            is_too_long = true;
            line = Vec::new();
        } else if !is_too_long {
            line.extend_from_slice(part);
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(Some(finished(line, is_too_long)));
        }
    }
}

fn finished(line: Vec<u8>, is_too_long: bool) -> GatewayLine {
    if is_too_long {
        return GatewayLine::TooLong;
    }
    let text = String::from_utf8(line)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    GatewayLine::Text(text.trim_end_matches('\r').to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn line_after_an_overlong_line_is_read_intact() {
        let bytes = b"one\r\n0123456789\ntwo\n\xff\nend";
        for capacity in [1, 3, 64] {
            let mut input = BufReader::with_capacity(capacity, bytes.as_slice());
            let mut lines = Vec::new();
            while let Some(line) = next_line(&mut input, 8).await.unwrap() {
                lines.push(line);
            }
            let text = |text: &str| GatewayLine::Text(text.into());
            assert_eq!(
                lines,
                [text("one"), GatewayLine::TooLong, text("two"), text("\u{fffd}"), text("end")]
            );
        }
    }
}
