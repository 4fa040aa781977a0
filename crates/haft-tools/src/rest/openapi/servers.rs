//! The servers that an OpenAPI document names.

use serde_json::Value;
use url::Url;

use super::documents::Node;

/// Returns the first server of a list, with variables replaced by their defaults, and resolved against the URL of the
/// document. Returns `None` if there is no such list.
pub(super) fn first(node: &Node<'_>, at: Option<&Url>) -> Option<Result<Url, String>> {
    let server = node.value.get("servers")?.as_array()?.first()?;
    let written = server.get("url")?.as_str()?;
    Some(filled(written, server).and_then(|filled| absolute(&filled, at)))
}

/// The maximum length of a server URL, in bytes, before and after its variables are replaced.
const SERVER_BYTES_MAX: usize = 2_000;

/// Replaces variables by their defaults. Does not expand variables inside the defaults, because nested variables could
/// grow exponentially.
fn filled(written: &str, server: &Value) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = written;
    while let Some((before, name, behind)) = next_variable(rest) {
        let default = server.get("variables").and_then(|variables| variables.get(name)?.get("default"));
        let default = match default {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => {
                return Err(format!(
                    "the server `{}` has a variable without a default; set `baseUrl` to use another URL",
                    short(written)
                ));
            }
        };
        filled.push_str(before);
        filled.push_str(&default);
        rest = behind;
        if filled.len() > SERVER_BYTES_MAX {
            break;
        }
    }
    filled.push_str(rest);
    if filled.len() > SERVER_BYTES_MAX {
        return Err(format!(
            "the server URL in the OpenAPI document is longer than {SERVER_BYTES_MAX} bytes; set `baseUrl` to use another URL"
        ));
    }
    Ok(filled)
}

/// Returns the text before the next variable, its name, and the text after it.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = text.split_once('{')?;
    let (name, behind) = after.split_once('}')?;
    Some((before, name, behind))
}

fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

/// Resolves a relative server URL against the URL of the document. A file cannot be the base, because it has no host.
fn absolute(written: &str, at: Option<&Url>) -> Result<Url, String> {
    if written.contains('{') {
        return Err(format!(
            "the server `{written}` has a variable without a default; set `baseUrl` to use another URL"
        ));
    }
    let of_web = at.filter(|at| matches!(at.scheme(), "http" | "https"));
    let parsed = match (written.strip_prefix("//"), of_web) {
        (Some(rest), None) => Url::parse(&format!("https://{rest}")),
        (_, Some(at)) => at.join(written),
        (None, None) => Url::parse(written),
    };
    let url = parsed.map_err(|_| {
        format!("the server `{written}` is not a complete URL; set `baseUrl` to use another URL")
    })?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(format!("the server `{written}` is neither http nor https; set `baseUrl` to use another URL"))
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]
mod tests {
    use serde_json::json;

    use super::super::fixture::documents;
    use super::*;

    #[test]
    fn server_urls_resolve_variables_and_relative_references() {
        let check = |server: Value, at: &str, expected: Option<&str>| {
            let documents = documents(&json!({ "servers": [server] }));
            let at = Url::parse(at).unwrap();
            let found = first(&documents.root(), Some(&at)).unwrap();
            assert_eq!(found.as_ref().ok().map(Url::as_str), expected, "{server} {found:?}");
        };
        let file = "file:///x/openapi.json";
        check(json!({"url": "https://a.com/v1"}), file, Some("https://a.com/v1"));
        check(
            json!({"url": "https://{r}.a.com:{p}", "variables": {"r": {"default": "eu"}, "p": {"default": 8443}}}),
            file,
            Some("https://eu.a.com:8443/"),
        );
        check(json!({"url": "https://{r}.a.com"}), file, None);
        check(
            json!({"url": "https://a.com/{a}", "variables": {"a": {"default": "{b}{b}"}, "b": {"default": "x"}}}),
            file,
            None,
        );
        check(json!({"url": format!("https://a.com/{}", "x".repeat(3_000))}), file, None);
        check(json!({"url": "/v2"}), file, None);
        check(json!({"url": "//a.com/v2"}), file, Some("https://a.com/v2"));
        check(json!({"url": "/v2"}), "http://localhost:80/d/openapi.json", Some("http://localhost/v2"));
        check(json!({"url": "ws://a.com"}), file, None);
    }
}
