//! Expands variables in values: `${VAR}`, `${VAR:-default}` and `${env:VAR}`.

use crate::printable::excerpt;

/// Looks up variables. The caller passes the function in, so that expansion does not depend on the environment.
pub type VariableSource<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// Replaces variables by their values. As in a shell, a default also replaces an empty value. The value of a variable
/// is not expanded again. `${parameters.x}` belongs to REST tools and is kept.
pub fn expand(text: &str, lookup: VariableSource<'_>) -> Result<String, ExpandError> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').ok_or(ExpandError::Open)?;
        expanded.push_str(before);
        expanded.push_str(&value(inside, lookup)?);
        rest = behind;
    }
    expanded.push_str(rest);
    Ok(expanded)
}

/// Returns true for a valid variable name.
pub(super) fn is_name(text: &str) -> bool {
    let begins = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(begins) && text.chars().all(|c| begins(c) || c.is_ascii_digit())
}

fn value(inside: &str, lookup: VariableSource<'_>) -> Result<String, ExpandError> {
    if inside.starts_with("parameters.") {
        return Ok(format!("${{{inside}}}"));
    }
    let reference = inside.strip_prefix("env:").unwrap_or(inside);
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_name(name) || default.is_some_and(|default| default.contains("${")) {
        return Err(ExpandError::NotAVariable { written: inside.into() });
    }
    match (lookup(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.into()),
        (None, None) => Err(ExpandError::Unset { name: name.into() }),
    }
}

/// The reasons why a text cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    #[error(
        "variable `{0}` is not set; set the variable, or write a default as in ${{{0}:-value}}",
        excerpt(name)
    )]
    Unset { name: String },
    #[error("expected a variable as ${{NAME}} or ${{NAME:-default}}; got `${{{}}}`", excerpt(written))]
    NotAVariable { written: String },
    #[error("the `${{` of a variable is not closed by `}}`")]
    Open,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/u".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOME}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_expanded_with_defaults() {
        let check = |text: &str, expected: &str| {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expected), "{text}");
        };
        check("", "");
        check("plain $HOME }{ $", "plain $HOME }{ $");
        check("${HOME}/a:${env:HOME}", "/home/u/a:/home/u");
        check("[${EMPTY}]", "[]");
        check("${EMPTY:-x} ${NONE:-y z} ${NONE:-} ${HOME:-n}", "x y z  /home/u");
        check("${env:NONE:-d}", "d");
        check("${NESTED}", "${HOME}");
        check("${parameters.city} ${HOME}", "${parameters.city} /home/u");
    }

    #[test]
    fn invalid_or_unset_variable_is_an_error() {
        let check =
            |text: &str, expected: ExpandError| assert_eq!(expand(text, &lookup), Err(expected), "{text}");
        let not = |written: &str| ExpandError::NotAVariable { written: written.into() };
        check("a${NONE}", ExpandError::Unset { name: "NONE".into() });
        check("${env:NONE}", ExpandError::Unset { name: "NONE".into() });
        check("${", ExpandError::Open);
        check("${HOME", ExpandError::Open);
        check("${}", not(""));
        check("${1A}", not("1A"));
        check("${A B}", not("A B"));
        check("${A:-${HOME}}", not("A:-${HOME"));
    }
}
