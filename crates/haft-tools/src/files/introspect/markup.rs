//! Escapes names and content inside tags, so that neither can close the tag that contains it.

use std::path::Path;

use crate::files::path::visible;

/// Returns a relative path as text for a list or an attribute; the root is `.`.
pub(super) fn shown_path(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return ".".to_owned();
    }
    let text = visible(path.to_string_lossy().chars());
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns content that ends with a line break. Escapes only the closing tags of the wrappers, by writing their `<` as
/// `&lt;`, because code with many entities would mislead the model.
pub(super) fn content(text: &str, wrappers: &[&str]) -> String {
    let mut shown = text.to_owned();
    for tag in wrappers {
        shown = shown.replace(&format!("</{tag}"), &format!("&lt;/{tag}"));
    }
    if !shown.is_empty() && !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_escaped_in_lines_and_attributes() {
        assert_eq!(shown_path(Path::new("")), ".");
        assert_eq!(shown_path(Path::new("src/a b.rs")), "src/a b.rs");
        assert_eq!(shown_path(Path::new("a\"><b>&\n")), "a&quot;&gt;&lt;b&gt;&amp;\\n");
    }

    #[test]
    fn closing_tag_in_content_is_escaped() {
        assert_eq!(content("a </file> b < c </p>", &["file"]), "a &lt;/file> b < c </p>\n");
        assert_eq!(content("a\n", &["file"]), "a\n");
        assert_eq!(content("", &["file"]), "");
    }
}
