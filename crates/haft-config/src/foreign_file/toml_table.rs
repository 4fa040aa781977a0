//! Changes one table of a TOML text and keeps everything else: comments, order, and the keys that the user added.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::edit::ConfigEntry;

/// A value in a TOML text.
struct TomlValue {
    path: Vec<String>,
    span: Range<usize>,
}

/// A table with a heading of its own.
struct TomlTable {
    path: Vec<String>,
    /// The byte range of the table, from its heading to the end of the last line with a value. Comments after that line
    /// belong to the next table.
    lines: Range<usize>,
}

/// Returns the text with these values, which are TOML texts, in a table. A table that does not exist is added at the
/// end.
pub(super) fn put(text: &str, table: ConfigEntry<'_>, values: &[(&str, String)]) -> Result<String, String> {
    let found = values_of(text)?;
    let path = [table.section.to_owned(), table.name.to_owned()];
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut missing = String::new();
    for (key, value) in values {
        let is_it = |found: &&TomlValue| found.path[..] == [&path[..], &[(*key).to_owned()]].concat();
        match found.iter().find(is_it) {
            Some(found) => edits.push((found.span.clone(), value.clone())),
            None => missing.extend([*key, " = ", value.as_str(), "\n"]),
        }
    }
    if !missing.is_empty() {
        let own = tables_of(text, &found).into_iter().find(|table| table.path == path);
        edits.push(match own {
            Some(own) => {
                (own.lines.end..own.lines.end, format!("{}{missing}", line_break(&text[..own.lines.end])))
            }
            None => (text.len()..text.len(), format!("{}{}\n{missing}", gap(text), heading(table))),
        });
    }
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut changed = text.to_owned();
    for (range, replacement) in edits {
        changed.replace_range(range, &replacement);
    }
    Ok(changed)
}

/// Returns the text without a table and the tables inside it; `None` if the text has no such table.
pub(super) fn remove(text: &str, table: ConfigEntry<'_>) -> Result<Option<String>, String> {
    let found = values_of(text)?;
    let path = [table.section.to_owned(), table.name.to_owned()];
    let own: Vec<TomlTable> =
        tables_of(text, &found).into_iter().filter(|table| table.path.starts_with(&path)).collect();
    if own.is_empty() {
        return Ok(None);
    }
    let mut changed = text.to_owned();
    for table in own.iter().rev() {
        changed.replace_range(table.lines.clone(), "");
        join_gap(&mut changed, table.lines.start);
    }
    Ok(Some(changed))
}

/// Removes one of the two empty lines around a removed table, or the empty line before it at the end of the text.
fn join_gap(text: &mut String, at: usize) {
    let (before, after) = text.split_at(at);
    let is_gap = before == "\n" || before.ends_with("\n\n");
    if is_gap && (after.is_empty() || after.starts_with('\n')) {
        text.remove(at - 1);
    }
}

fn line_break(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with('\n') { "" } else { "\n" }
}

fn gap(text: &str) -> &'static str {
    match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    }
}

fn heading(ConfigEntry { section, name }: ConfigEntry<'_>) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) {
        return format!("[{section}.{name}]");
    }
    // A JSON string is also a TOML string.
    format!("[{section}.{}]", serde_json::Value::from(name))
}

fn values_of(text: &str) -> Result<Vec<TomlValue>, String> {
    let parsed = DeTable::parse(text).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    collect(text, parsed.get_ref(), &[], &mut found);
    Ok(found)
}

/// Collects the values of a table and of the tables with headings inside it.
fn collect(text: &str, table: &DeTable<'_>, path: &[String], found: &mut Vec<TomlValue>) {
    for (key, value) in table {
        let mut path = path.to_owned();
        path.push(key.get_ref().clone().into_owned());
        let span = value.span();
        // The span of an inline table begins with its brace; the span of another table is its heading or its key.
        let is_inline = text[span.start..].starts_with('{');
        match value.get_ref() {
            DeValue::Table(inner) if is_inline => collect_inline(inner, &path, found),
            DeValue::Table(inner) => {
                collect(text, inner, &path, found);
                continue;
            }
            DeValue::Array(items) => {
                let inner = items.iter().filter(|item| text[item.span().start..].starts_with('['));
                let tables: Vec<_> = inner.filter_map(|item| item.get_ref().as_table()).collect();
                if !tables.is_empty() {
                    for inner in tables {
                        collect(text, inner, &path, found);
                    }
                    continue;
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_) => {}
        }
        found.push(TomlValue { path, span });
    }
}

fn collect_inline(table: &DeTable<'_>, path: &[String], found: &mut Vec<TomlValue>) {
    for (key, value) in table {
        let path = [path, &[key.get_ref().clone().into_owned()]].concat();
        found.push(TomlValue { path, span: value.span() });
    }
}

fn tables_of(text: &str, values: &[TomlValue]) -> Vec<TomlTable> {
    let starts = headings(text, values);
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([text.len()]);
    let line_end = |at: usize| text[at..].find('\n').map_or(text.len(), |end| at + end + 1);
    let table = |((start, path), next): (&(usize, Vec<String>), usize)| {
        let inside = values.iter().filter(|value| (*start..next).contains(&value.span.start));
        let end = inside.map(|value| value.span.end).max().unwrap_or(*start);
        TomlTable { path: path.clone(), lines: *start..line_end(end) }
    };
    starts.iter().zip(ends).map(table).collect()
}

/// Returns the offsets and paths of the headings. A line in the middle of a value is no heading.
fn headings(text: &str, values: &[TomlValue]) -> Vec<(usize, Vec<String>)> {
    let mut at = 0;
    let mut found = Vec::new();
    for line in text.split_inclusive('\n') {
        let is_inside = values.iter().any(|value| value.span.start < at && at < value.span.end);
        if line.trim_start().starts_with('[') && !is_inside {
            found.push((at, heading_path(line)));
        }
        at += line.len();
    }
    found
}

fn heading_path(line: &str) -> Vec<String> {
    let mut path = Vec::new();
    let mut value = toml::from_str::<toml::Value>(line).ok();
    loop {
        let table = match value {
            Some(toml::Value::Table(table)) => table,
            Some(toml::Value::Array(mut items)) => {
                value = items.pop();
                continue;
            }
            Some(_) | None => return path,
        };
        let Some((key, inner)) = table.into_iter().next() else { return path };
        path.push(key);
        value = Some(inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAFT: ConfigEntry<'_> = ConfigEntry { section: "mcp_servers", name: "haft" };

    fn check_put(text: &str, expected: &str) {
        let values = [("command", "\"new\"".to_owned()), ("args", "[\"x\"]".to_owned())];
        let changed = put(text, HAFT, &values).unwrap();
        assert_eq!(changed, expected);
        toml::from_str::<toml::Table>(&changed).unwrap();
    }

    fn check_removed(text: &str, expected: &str) {
        assert_eq!(remove(text, HAFT).unwrap().unwrap(), expected);
    }

    #[test]
    fn values_are_replaced_in_place() {
        check_put("", "[mcp_servers.haft]\ncommand = \"new\"\nargs = [\"x\"]\n");
        check_put("a = 1", "a = 1\n\n[mcp_servers.haft]\ncommand = \"new\"\nargs = [\"x\"]\n");
        check_put(
            "# one\n[mcp_servers.haft] # ours\nargs = [ # why\n  \"[not.a.heading]\",\n  [\"y\"],\n] # end\n\
             default_tools_approval_mode = \"prompt\"\ncommand = 'old' # kept\n\n# about b\n[b]\nc = 1\n",
            "# one\n[mcp_servers.haft] # ours\nargs = [\"x\"] # end\n\
             default_tools_approval_mode = \"prompt\"\ncommand = \"new\" # kept\n\n# about b\n[b]\nc = 1\n",
        );
        check_put(
            "[mcp_servers.\"haft\"]\nenabled = true\n# about env\n[mcp_servers.haft.env]\nA = \"b\"",
            "[mcp_servers.\"haft\"]\nenabled = true\ncommand = \"new\"\nargs = [\"x\"]\n\
             # about env\n[mcp_servers.haft.env]\nA = \"b\"",
        );
        check_put(
            "[mcp_servers]\nhaft = { command = \"old\", args = [] }\n",
            "[mcp_servers]\nhaft = { command = \"new\", args = [\"x\"] }\n",
        );
        check_put(
            "text = \"\"\"\n[mcp_servers.haft]\n\"\"\"\n",
            "text = \"\"\"\n[mcp_servers.haft]\n\"\"\"\n\n[mcp_servers.haft]\ncommand = \"new\"\nargs = [\"x\"]\n",
        );
        check_put("[mcp_servers.haft]", "[mcp_servers.haft]\ncommand = \"new\"\nargs = [\"x\"]\n");
    }

    #[test]
    fn removing_a_table_removes_no_other_line() {
        check_removed("a = 1\n\n[mcp_servers.haft]\ncommand = \"x\"\n", "a = 1\n");
        check_removed(
            "[mcp_servers.haft]\nargs = [\n\"[b]\",\n]\n\n# about b\n[b]\nc = 1\n",
            "\n# about b\n[b]\nc = 1\n",
        );
        check_removed(
            "[a]\nb = 1\n\n[mcp_servers.haft]\nc = 1\n\n[mcp_servers.haft.env]\nA = \"b\"\n# about other\n\n\
             [[other]]\nd = 1\n\n[[other]]\nd = 2\n",
            "[a]\nb = 1\n\n# about other\n\n[[other]]\nd = 1\n\n[[other]]\nd = 2\n",
        );
        assert_eq!(remove("[mcp_servers.haft2]\na = 1\n", HAFT).unwrap(), None);
        assert!(remove("[broken", HAFT).is_err());
    }
}
