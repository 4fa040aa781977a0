//! Puts a description into `haft.json`, and leaves everything else in the file as it is.

use std::fmt;
use std::path::{Path, PathBuf};

use haft_sandbox::Home;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};

use crate::config::{self, ConfigErrors};
use crate::private_file;

/// What is added: keys and values as they are written.
#[derive(Debug, Clone, Default)]
pub struct Addition {
    pub name: String,
    pub spec: String,
    pub base_url: Option<String>,
    pub headers: Vec<(String, String)>,
}

/// Why nothing was added.
#[derive(Debug)]
pub enum AddError {
    Exists(String),
    Unreadable(PathBuf, String),
    Invalid(ConfigErrors),
    Unwritable(PathBuf, std::io::Error),
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(name) => {
                write!(
                    f,
                    "there is a description `{name}` already\nhint: choose another name, or edit haft.json"
                )
            }
            Self::Unreadable(path, reason) => write!(f, "`{}` cannot be changed: {reason}", path.display()),
            Self::Invalid(errors) => write!(f, "the configuration would not be valid: {errors}"),
            Self::Unwritable(path, error) => write!(f, "`{}` cannot be written: {error}", path.display()),
        }
    }
}

impl std::error::Error for AddError {}

/// Adds it to the file in haft's home, and says which file that is. The file is replaced in one step.
pub fn add(home: &Home, addition: &Addition) -> Result<PathBuf, AddError> {
    let path = home.config();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => "{}\n".to_owned(),
        Err(error) => return Err(AddError::Unreadable(path, error.to_string())),
    };
    let changed = added(&path, &text, addition)?;
    config::check_text(&path, &changed, &config::environment).map_err(AddError::Invalid)?;
    private_file::replace(&path, changed.as_bytes())
        .map_err(|error| AddError::Unwritable(path.clone(), error))?;
    Ok(path)
}

fn added(path: &Path, text: &str, addition: &Addition) -> Result<String, AddError> {
    let unreadable = |reason: String| AddError::Unreadable(path.to_owned(), reason);
    let root =
        CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| unreadable(error.to_string()))?;
    let top = root.object_value_or_create().ok_or_else(|| unreadable("it holds no object".into()))?;
    let specs = top
        .object_value_or_create("openapiSpecs")
        .ok_or_else(|| unreadable("`openapiSpecs` is no object".into()))?;
    if specs.get(&addition.name).is_some() {
        return Err(AddError::Exists(addition.name.clone()));
    }
    specs.append(&addition.name, value(addition));
    Ok(root.to_string())
}

fn value(addition: &Addition) -> CstInputValue {
    let text = |text: &String| CstInputValue::String(text.clone());
    let mut members = vec![("spec".to_owned(), text(&addition.spec))];
    members.extend(addition.base_url.iter().map(|url| ("baseUrl".to_owned(), text(url))));
    if !addition.headers.is_empty() {
        let headers = addition.headers.iter().map(|(name, value)| (name.clone(), text(value)));
        members.push(("headers".to_owned(), CstInputValue::Object(headers.collect())));
    }
    CstInputValue::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addition() -> Addition {
        Addition { name: "pets".into(), spec: "/pets.json".into(), ..Addition::default() }
    }

    #[test]
    fn comments_and_order_stay() {
        let text = "{\n  // why\n  \"toolTimeout\": 5, /* ms */\n}\n";
        let found = added(Path::new("/x"), text, &addition()).unwrap();
        assert!(found.starts_with("{\n  // why\n  \"toolTimeout\": 5, /* ms */\n"), "{found}");
        let again = added(Path::new("/x"), &found, &Addition { name: "dogs".into(), ..addition() }).unwrap();
        assert!(again.contains("\"pets\"") && again.contains("\"dogs\""), "{again}");
        assert!(matches!(added(Path::new("/x"), &again, &addition()), Err(AddError::Exists(_))));
    }

    #[test]
    fn what_is_no_object_is_left_alone() {
        assert!(added(Path::new("/x"), "[1]", &addition()).is_err());
        assert!(added(Path::new("/x"), "{\"openapiSpecs\": 1}", &addition()).is_err());
    }
}
