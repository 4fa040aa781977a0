//! Converts the variables of other programs to haft's `${NAME}`.

use serde_json::{Map, Value};

use super::EntryBuilder;

/// The notation of variables in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableStyle {
    /// `${NAME}`, `${env:NAME}`, `${input:ID}` and names of directories.
    Braces,
    /// As `Braces`, and `$NAME`.
    Dollars,
    /// As `Braces`. `$NAME` may be a variable or plain text, because haft does not know the program.
    Unknown,
    /// `{env:NAME}` and `{file:PATH}`.
    Opencode,
    /// The program has no variables: a dollar sign is plain text.
    None,
}

/// The variables without a kind that VS Code sets itself. They are not environment variables.
const EDITOR_VARIABLES: [&str; 15] = [
    "columnNumber",
    "defaultBuildTask",
    "execPath",
    "file",
    "fileBasename",
    "fileBasenameNoExtension",
    "fileDirname",
    "fileDirnameBasename",
    "fileExtname",
    "fileWorkspaceFolder",
    "lineNumber",
    "relativeFile",
    "relativeFileDirname",
    "selectedText",
    "workspaceFolderBasename",
];

/// Returns the text with haft's variables, and adds notes about the steps that the user must still do.
pub(super) fn rewrite(text: &str, style: VariableStyle, builder: &mut EntryBuilder) -> String {
    match style {
        VariableStyle::None => {
            note_plain_braces(text, builder);
            text.to_owned()
        }
        VariableStyle::Braces => rewrite_between(text, "${", builder, brace_variable),
        VariableStyle::Dollars => rewrite_between(&braced(text).0, "${", builder, brace_variable),
        VariableStyle::Unknown => {
            for name in braced(text).1 {
                builder.note(format!(
                    "haft kept `${name}` as plain text; if it is a variable, write `${{{name}}}`"
                ));
            }
            rewrite_between(text, "${", builder, brace_variable)
        }
        VariableStyle::Opencode => {
            note_plain_braces(text, builder);
            rewrite_between(text, "{", builder, opencode_variable)
        }
    }
}

/// Notes each `${NAME}` that is plain text in the other program. In the configuration of haft it is a variable, and
/// there is no way to write it as plain text.
fn note_plain_braces(text: &str, builder: &mut EntryBuilder) {
    for (inside, _) in text.split("${").skip(1).filter_map(|after| after.split_once('}')) {
        builder.note(format!(
            "`${{{inside}}}` is plain text in the other program, but a variable in haft; if the server needs the plain \
             text, set it in a script that starts the server"
        ));
    }
}

/// Puts braces around the variables without braces: `$NAME` becomes `${NAME}`. Also returns the names of these variables.
fn braced(text: &str) -> (String, Vec<&str>) {
    let (mut written, mut names, mut rest) = (String::new(), Vec::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        written.push_str(before);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, end) = after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()));
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            written.push('$');
            rest = after;
        } else {
            written.extend(["${", name, "}"]);
            names.push(name);
            rest = end;
        }
    }
    (written + rest, names)
}

/// Replaces each `OPEN…}` by the result of `meaning`. If the result is `None`, keeps the text.
fn rewrite_between(
    text: &str,
    open: &str,
    builder: &mut EntryBuilder,
    meaning: fn(&str, &mut EntryBuilder) -> Option<String>,
) -> String {
    let (mut written, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(open) {
        written.push_str(before);
        let Some((inside, end)) = after.split_once('}') else {
            written.push_str(open);
            rest = after;
            continue;
        };
        let variable = meaning(inside, builder);
        written.push_str(&variable.unwrap_or_else(|| format!("{open}{inside}}}")));
        rest = end;
    }
    written + rest
}

fn brace_variable(inside: &str, builder: &mut EntryBuilder) -> Option<String> {
    let (kind, name) = inside.split_once(':').unwrap_or(("", inside));
    match (kind, name) {
        ("env", name) => Some(format!("${{{name}}}")),
        ("input", id) => {
            let name = variable_name(id);
            builder.note(format!(
                "set the environment variable `{name}`: the other program asks the user for the value `{id}`"
            ));
            builder.ask(&name, id);
            Some(format!("${{{name}}}"))
        }
        ("", "userHome") => Some("${HOME}".into()),
        ("", "workspaceFolder" | "workspaceRoot" | "cwd") => Some(".".into()),
        ("", "pathSeparator" | "/") => Some("/".into()),
        // The default of a variable: `${NAME:-default}`.
        (kind, default) if !kind.is_empty() && default.starts_with('-') => None,
        ("", name) if !EDITOR_VARIABLES.contains(&name) => None,
        (_, _) => {
            builder.note(format!(
                "haft has no value for `${{{inside}}}` of the other program; replace it in the entry, otherwise the \
                 server does not start"
            ));
            None
        }
    }
}

fn opencode_variable(inside: &str, builder: &mut EntryBuilder) -> Option<String> {
    match inside.split_once(':') {
        Some(("env", name)) => Some(format!("${{{name}}}")),
        Some(("file", path)) => {
            let name = variable_name(path);
            builder
                .note(format!("set the environment variable `{name}` to the content of the file `{path}`"));
            Some(format!("${{{name}}}"))
        }
        Some(_) | None => None,
    }
}

/// Returns a valid variable name.
pub(super) fn variable_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let name = name.trim_matches('_').to_owned();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() { format!("V_{name}") } else { name }
}

/// Converts the values of a map of strings. Leaves out other values, with a note.
pub(super) fn rewrite_map(
    map: &Map<String, Value>,
    style: VariableStyle,
    builder: &mut EntryBuilder,
) -> Map<String, Value> {
    let mut written = Map::new();
    for (name, value) in map {
        match text_of(value) {
            Some(text) => {
                let text = rewrite(&text, style, builder);
                written.insert(name.clone(), text.into());
            }
            None => builder.note(format!("haft did not import `{name}`, because its value is not a string")),
        }
    }
    written
}

/// Returns the text of a string, a number or a boolean, because users write all of these into environments.
pub(super) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Converts the variables in each word of a list. A list that is not complete makes the server unusable, because the
/// program would start with other arguments.
pub(super) fn rewrite_words(
    key: &str,
    words: &Value,
    style: VariableStyle,
    builder: &mut EntryBuilder,
) -> Vec<Value> {
    let Some(words) = words_of(words) else {
        builder.unusable(format!("the value of the key `{key}` is not a list of texts"));
        return Vec::new();
    };
    words.into_iter().map(|word| Value::from(rewrite(&word, style, builder))).collect()
}

/// Returns the words of a list; `None` if the value is not a list, or contains a value that is not a word.
fn words_of(words: &Value) -> Option<Vec<String>> {
    match words {
        Value::Null => Some(Vec::new()),
        Value::Array(words) => words.iter().map(text_of).collect(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => None,
    }
}
