//! Splits the command's output into lines.

/// The longest line, in bytes. The output of a tool comes in one line.
const LINE_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct OutputLineSplitter {
    unfinished: Vec<u8>,
}

impl OutputLineSplitter {
    /// Returns the lines that are complete now. Invalid UTF-8 is replaced.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, String> {
        self.unfinished.extend_from_slice(bytes);
        let Some(end) = self.unfinished.iter().rposition(|byte| *byte == b'\n') else {
            if self.unfinished.len() > LINE_BYTES_MAX {
                return Err(format!("the command printed a line of more than {LINE_BYTES_MAX} bytes"));
            }
            return Ok(Vec::new());
        };
        let rest = self.unfinished.split_off(end + 1);
        let whole = std::mem::replace(&mut self.unfinished, rest);
        let lines = whole.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned());
        Ok(lines.filter(|line| !line.trim().is_empty()).collect())
    }

    /// Returns the text after the last newline.
    pub(super) fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.unfinished);
        let line = String::from_utf8_lossy(&rest).into_owned();
        (!line.trim().is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_split_at_any_byte_gives_the_same_lines() {
        let text = "{\"a\":1}\n\n{\"b\":\"é\"}\r\nlast".as_bytes();
        for at in 0..text.len() {
            let mut lines = OutputLineSplitter::default();
            let mut found = lines.push(&text[..at]).unwrap();
            found.extend(lines.push(&text[at..]).unwrap());
            found.extend(lines.finish());
            let found: Vec<&str> = found.iter().map(|line| line.trim()).collect();
            assert_eq!(found, ["{\"a\":1}", "{\"b\":\"é\"}", "last"], "{at}");
        }
    }

    #[test]
    fn line_over_the_size_limit_is_an_error() {
        let mut lines = OutputLineSplitter::default();
        let piece = vec![b'x'; LINE_BYTES_MAX / 2 + 1];
        assert!(lines.push(&piece).is_ok());
        assert!(lines.push(&piece).unwrap_err().contains("bytes"));
    }
}
