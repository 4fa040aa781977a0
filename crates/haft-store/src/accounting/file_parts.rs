//! Reads the lines of a file in several parts concurrently.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The size of the read buffer, and the maximum length of a line that is read, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Whole lines of a file, from one offset to another. Several parts of the same file are read concurrently.
#[derive(Debug)]
pub(super) struct FilePart<'a> {
    file: &'a File,
    range: Range<u64>,
}

impl Read for FilePart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let read = self.file.read_at(&mut buffer[..wanted], self.range.start)?;
        self.range.start += read as u64;
        Ok(read)
    }
}

/// Splits a file into at most `count` parts of at least `bytes_min` bytes, each ending at a line end. The last part
/// extends to the end of the file at the time when it is read.
pub(super) fn parts(file: &File, count: usize, bytes_min: u64) -> io::Result<Vec<FilePart<'_>>> {
    let bytes = file.metadata()?.len();
    let step = (bytes / count as u64).max(bytes_min);
    let mut parts = Vec::new();
    let mut start = 0;
    while parts.len() + 1 < count && start + step < bytes {
        let end = line_end(file, start + step)?;
        parts.push(FilePart { file, range: start..end });
        start = end;
    }
    parts.push(FilePart { file, range: start..u64::MAX });
    Ok(parts)
}

/// Returns the offset after the first line end at or after `offset`.
fn line_end(file: &File, mut offset: u64) -> io::Result<u64> {
    let mut buffer = [0; 4 << 10];
    loop {
        let read = file.read_at(&mut buffer, offset)?;
        match memchr::memchr(b'\n', &buffer[..read]) {
            Some(newline) => return Ok(offset + newline as u64 + 1),
            None if read == 0 => return Ok(offset),
            None => offset += read as u64,
        }
    }
}

/// Calls `give` with each line, without its line end. The lines stay in the read buffer, which saves a copy. A line
/// that does not fit is cut, so that it is not valid JSON.
pub(super) fn each_line(mut file: impl Read, mut give: impl FnMut(&mut [u8])) -> io::Result<()> {
    let mut buffer = vec![0; LINE_BYTES_MAX];
    let mut filled = 0;
    let mut is_rest_of_line = false;
    loop {
        let read = match file.read(&mut buffer[filled..]) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if read == 0 {
            break;
        }
        let end = filled + read;
        let (mut line_start, mut unsearched) = (0, filled);
        while let Some(newline) = memchr::memchr(b'\n', &buffer[unsearched..end]) {
            let line_end = unsearched + newline;
            if !std::mem::take(&mut is_rest_of_line) {
                give(&mut buffer[line_start..line_end]);
            }
            (line_start, unsearched) = (line_end + 1, line_end + 1);
        }
        filled = end - line_start;
        buffer.copy_within(line_start..end, 0);
        if filled == buffer.len() {
            if !std::mem::replace(&mut is_rest_of_line, true) {
                give(&mut buffer);
            }
            filled = 0;
        }
    }
    if filled > 0 && !is_rest_of_line {
        give(&mut buffer[..filled]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(bytes: &[u8], piece: usize) -> Vec<String> {
        struct ChunkedReader<'a>(&'a [u8], usize);
        impl Read for ChunkedReader<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let piece = self.1.min(buffer.len());
                self.0.read(&mut buffer[..piece])
            }
        }
        let mut lines = Vec::new();
        let take = |line: &mut [u8]| lines.push(String::from_utf8(line.to_vec()).unwrap());
        each_line(ChunkedReader(bytes, piece), take).unwrap();
        lines
    }

    #[test]
    fn line_splitting_is_independent_of_read_size() {
        let check = |text: &str, expected: &[&str]| {
            for piece in 1..=text.len().max(1) {
                assert_eq!(lines_of(text.as_bytes(), piece), expected, "{piece}");
            }
        };
        check("", &[]);
        check("one\ntwo\n", &["one", "two"]);
        check("one\n\nthree", &["one", "", "three"]);
    }

    #[test]
    fn overlong_line_is_truncated_to_the_buffer() {
        let long = "x".repeat(3 * LINE_BYTES_MAX + 17);
        let lines = lines_of(format!("one\n{long}\ntwo\n{long}").as_bytes(), 1 << 16);
        let lengths: Vec<usize> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [3, LINE_BYTES_MAX, 3, LINE_BYTES_MAX]);
    }

    #[test]
    fn file_parts_contain_each_line_exactly_once() {
        let text: String = (0..300).flat_map(|number| ["x".repeat(number * 37 % 101), "\n".into()]).collect();
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
        for count in 1..50 {
            let mut lines = Vec::new();
            let parts = parts(&file, count, 7).unwrap();
            assert!((count.div_ceil(2)..=count).contains(&parts.len()), "{count}: {parts:?}");
            for part in parts {
                each_line(part, |line| lines.push(line.len())).unwrap();
            }
            assert_eq!(lines, text.lines().map(str::len).collect::<Vec<_>>(), "lines of {count} parts");
        }
        assert_eq!(parts(&file, 50, text.len() as u64).unwrap().len(), 1, "a small file is one part");
    }
}
