//! A tool that the operator defined: a URL, headers and a body with placeholders for arguments.

use std::collections::BTreeMap;

use haft_core::result::ToolError;
use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value, json};
use url::Url;

use super::body::RestBody;
use super::encode;
use super::parameter::{Explode, ParameterStyle, pairs};
use super::request::{RestRequest, has_dots, header_value, missing};
use super::template::{ArgumentMap, JsonTemplate, MissingArgument, TemplateError, TextTemplate};
use haft_core::settings::method::Method;
use haft_core::settings::rest::QueryForm;

/// The operator's settings for a tool, with environment variables already substituted.
#[derive(Debug)]
pub struct TemplateSettings<'a> {
    pub method: Method,
    pub url: &'a str,
    pub headers: &'a BTreeMap<String, SecretString>,
    pub schema: Option<&'a Value>,
    pub body: Option<Value>,
    pub query: Vec<String>,
    pub query_form: QueryForm,
}

/// The parsed request templates of a tool.
#[derive(Debug)]
pub struct RequestTemplates {
    pub method: Method,
    /// The scheme, host and port. No argument can change them.
    pub origin: Url,
    path: TextTemplate,
    /// The query pairs. A pair whose argument is missing is left out.
    query: Vec<TextTemplate>,
    named: Vec<String>,
    query_form: QueryForm,
    headers: Vec<(HeaderName, TextTemplate)>,
    body: Option<JsonTemplate>,
    defaults: Map<String, Value>,
    pub schema: Value,
}

/// An error in the operator's settings, and the configuration key that contains it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}`: {message}")]
pub struct TemplateSettingsError {
    pub key: &'static str,
    pub message: String,
}

impl RequestTemplates {
    pub fn new(written: &TemplateSettings<'_>) -> Result<Self, TemplateSettingsError> {
        let (origin, path, query) = split_url(written.url)?;
        let named = written.query.clone();
        let headers = headers(written.headers)?;
        let body = written.body.clone().map(JsonTemplate::parse).transpose();
        let body =
            body.map_err(|error| TemplateSettingsError { key: "bodyTemplate", message: error.to_string() })?;
        let schema = schema(written, body.as_ref())?;
        let defaults =
            schema["properties"].as_object().into_iter().flatten().filter_map(|(name, property)| {
                property.get("default").map(|value| (name.clone(), value.clone()))
            });
        let defaults = defaults.collect();
        Ok(Self {
            method: written.method,
            origin,
            path,
            query,
            named,
            query_form: written.query_form,
            headers,
            body,
            defaults,
            schema,
        })
    }

    pub(super) fn request(&self, arguments: &ArgumentMap) -> Result<RestRequest, ToolError> {
        let mut all = self.defaults.clone();
        all.extend(arguments.iter().map(|(name, value)| (name.clone(), value.clone())));
        Ok(RestRequest {
            method: self.method,
            url: self.url(&all)?,
            headers: self.header_lines(&all)?,
            body: self.made_body(&all)?,
        })
    }

    fn url(&self, arguments: &ArgumentMap) -> Result<Url, ToolError> {
        let path = self.path.render(arguments, encode::strict).map_err(|gone| missing(&gone, "the URL"))?;
        if has_dots(&path) {
            return Err(super::request::invalid("`.` and `..` are not allowed as parts of the URL path"));
        }
        let written = self.query.iter().flat_map(|pair| self.written_pairs(pair, arguments));
        let named = self.named.iter().filter_map(|name| {
            arguments.get(name).filter(|value| !value.is_null()).map(|value| (name, value))
        });
        let named = named.flat_map(|(name, value)| self.pairs(name, value));
        let query: Vec<String> = written.chain(named).filter(|pair| !pair.is_empty()).collect();
        let mut url = self.origin.clone();
        url.set_path(&path);
        url.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());
        Ok(url)
    }

    /// Returns a query pair of the URL, encoded. With brackets, a list or an object becomes several pairs.
    fn written_pairs(&self, pair: &TextTemplate, arguments: &ArgumentMap) -> Vec<String> {
        // Skip a parameter that is listed in `query`: the list already adds it, and this pair would send it twice.
        if pair.parameters().any(|name| self.named.iter().any(|named| named == name)) {
            return Vec::new();
        }
        if let (QueryForm::Brackets, Some((key, name))) = (self.query_form, pair.assignment()) {
            match arguments.get(name) {
                Some(value @ (Value::Array(_) | Value::Object(_))) => return self.pairs(key, value),
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {}
            }
        }
        pair.render(arguments, encode::strict).into_iter().collect()
    }

    fn pairs(&self, name: &str, value: &Value) -> Vec<String> {
        let style = match (self.query_form, value) {
            (QueryForm::Brackets, _) => ParameterStyle::Brackets,
            (QueryForm::Plain, Value::Object(_)) => ParameterStyle::Json,
            (QueryForm::Plain, _) => ParameterStyle::Form,
        };
        let pairs = pairs(name, value, style, Explode::Yes);
        let encoded =
            |(name, value): (String, String)| format!("{}={}", encode::strict(&name), encode::strict(&value));
        pairs.into_iter().map(encoded).collect()
    }

    /// Renders the headers. Leaves out a header whose argument is missing. Marks all as sensitive, because the
    /// operator's text may contain a secret.
    fn header_lines(&self, arguments: &ArgumentMap) -> Result<Vec<(HeaderName, HeaderValue)>, ToolError> {
        let mut lines = Vec::with_capacity(self.headers.len());
        for (name, template) in &self.headers {
            let Ok(text) = template.render(arguments, str::to_owned) else { continue };
            let mut value = header_value(name.as_str(), &text)?;
            value.set_sensitive(true);
            lines.push((name.clone(), value));
        }
        Ok(lines)
    }

    /// Renders the body: a string as plain text, any other value as JSON. A `Content-Type` header overrides both.
    fn made_body(&self, arguments: &ArgumentMap) -> Result<Option<RestBody>, ToolError> {
        let Some(template) = &self.body else { return Ok(None) };
        let rendered =
            template.render(arguments).map_err(|gone: MissingArgument| missing(&gone, "the body"))?;
        Ok(rendered.map(|value| match &value {
            Value::String(text) if template.is_text() => {
                RestBody { media_type: "text/plain; charset=utf-8".into(), bytes: text.clone().into_bytes() }
            }
            _ => RestBody { media_type: "application/json".into(), bytes: value.to_string().into_bytes() },
        }))
    }
}

fn split_url(text: &str) -> Result<(Url, TextTemplate, Vec<TextTemplate>), TemplateSettingsError> {
    let wrong = |message: String| TemplateSettingsError { key: "url", message };
    let template = |text: &str| TextTemplate::parse(text).map_err(|error| wrong(error.to_string()));
    // Clients do not send the fragment of a URL to the server.
    let text = text.split('#').next().unwrap_or_default();
    let after_scheme = text.find("://").map(|at| at + 3);
    let after_scheme =
        after_scheme.ok_or_else(|| wrong("the URL must begin with https:// or http://".into()))?;
    let end = text[after_scheme..].find(['/', '?']).map_or(text.len(), |at| after_scheme + at);
    if text[..end].contains("${") {
        return Err(wrong("the host of the URL cannot contain a placeholder; write the host itself".into()));
    }
    let origin = Url::parse(&text[..end]).map_err(|error| wrong(format!("the URL is not valid: {error}")))?;
    super::guard::AllowedHosts::named(&origin)
        .check_url(&origin)
        .map_err(|refusal| wrong(refusal.to_string()))?;
    let (path, query) = text[end..].split_once('?').unwrap_or((&text[end..], ""));
    let path = if path.is_empty() { "/" } else { path };
    let query = query.split('&').filter(|pair| !pair.is_empty()).map(template).collect::<Result<_, _>>()?;
    Ok((origin, template(path)?, query))
}

fn headers(
    written: &BTreeMap<String, SecretString>,
) -> Result<Vec<(HeaderName, TextTemplate)>, TemplateSettingsError> {
    let wrong = |message: String| TemplateSettingsError { key: "headers", message };
    let parsed = written.iter().map(|(name, value)| {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| wrong(format!("`{name}` is not a valid header name")))?;
        let text = value.expose_secret();
        HeaderValue::from_str(text)
            .map_err(|_| wrong(format!("the value of the header `{name}` must be one line of text")))?;
        let template = TextTemplate::parse(text).map_err(|error: TemplateError| wrong(error.to_string()))?;
        Ok((header, template))
    });
    parsed.collect()
}

/// Returns the operator's schema. If there is none, every parameter with a placeholder is a string, and parameters in
/// the path are required.
fn schema(
    written: &TemplateSettings<'_>,
    body: Option<&JsonTemplate>,
) -> Result<Value, TemplateSettingsError> {
    if let Some(schema) = written.schema {
        let object = schema.get("type").and_then(Value::as_str) == Some("object");
        let wrong = || TemplateSettingsError {
            key: "parametersSchema",
            message: "expected a schema whose `type` is `object`".into(),
        };
        return if object { Ok(schema.clone()) } else { Err(wrong()) };
    }
    let (_, path, query) = split_url(written.url)?;
    let mut names: Vec<String> = path.parameters().map(str::to_owned).collect();
    let required = names.clone();
    names.extend(query.iter().flat_map(TextTemplate::parameters).map(str::to_owned));
    names.extend(written.query.iter().cloned());
    for header in written.headers.values() {
        let template = TextTemplate::parse(header.expose_secret());
        names.extend(template.iter().flat_map(TextTemplate::parameters).map(str::to_owned));
    }
    names.extend(body.into_iter().flat_map(JsonTemplate::parameters));
    let properties: Map<String, Value> =
        names.into_iter().map(|name| (name, json!({ "type": "string" }))).collect();
    Ok(
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false }),
    )
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]
mod tests {
    use super::*;

    fn templated(
        url: &str,
        headers: &[(&str, &str)],
        body: Option<Value>,
    ) -> Result<RequestTemplates, TemplateSettingsError> {
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect();
        RequestTemplates::new(&TemplateSettings {
            method: Method::Post,
            url,
            headers: &headers,
            schema: None,
            body,
            query: vec!["filter".into()],
            query_form: QueryForm::Brackets,
        })
    }

    fn request(tool: &RequestTemplates, arguments: &Value) -> Result<RestRequest, ToolError> {
        tool.request(arguments.as_object().unwrap())
    }

    #[test]
    fn placeholders_in_url_headers_and_body_are_filled() {
        let tool = templated(
            "https://api.example.com/w/${parameters.city}?lang=${parameters.lang}&v=1",
            &[("Authorization", "Bearer s3cret"), ("X-Id", "${parameters.id}")],
            Some(json!({"n": "${parameters.n}", "z": "s3cret"})),
        )
        .unwrap();
        let made = request(&tool, &json!({"city": "a/b", "n": 3, "filter": [{"p": "q"}]})).unwrap();
        assert_eq!(made.url.as_str(), "https://api.example.com/w/a%2Fb?v=1&filter%5B0%5D%5Bp%5D=q");
        assert_eq!(made.headers.len(), 1);
        assert_eq!(made.body.as_ref().unwrap().bytes, br#"{"n":3,"z":"s3cret"}"#);
        assert!(!format!("{made:?} {tool:?}").contains("s3cret"));
        assert_eq!(tool.schema["required"], json!(["city"]));
        assert!(request(&tool, &json!({})).unwrap_err().message.contains("`city` is missing"));
        let many = request(&tool, &json!({"city": "x", "lang": ["de", "fr"]})).unwrap();
        assert_eq!(many.url.query(), Some("lang%5B0%5D=de&lang%5B1%5D=fr&v=1"));
        let evil = json!({"city": "x", "id": "a\r\nb"});
        assert!(request(&tool, &evil).unwrap_err().message.contains("one line"));
        assert!(request(&tool, &json!({"city": ".."})).is_err());
    }

    #[test]
    fn argument_cannot_change_the_url_host() {
        for bad in [
            "https://${parameters.host}/x",
            "https://a.com${parameters.rest}",
            "${parameters.url}",
            "ftp://a.com/",
            "https://u:p@a.com/",
            "/relative",
        ] {
            assert_eq!(templated(bad, &[], None).unwrap_err().key, "url", "{bad}");
        }
        let open = templated("https://a.com/", &[], Some(json!(["${parameters.x"])));
        assert_eq!(open.unwrap_err().key, "bodyTemplate");
        let tool = templated("https://a.com/${parameters.x}", &[], None).unwrap();
        let made = request(&tool, &json!({"x": "@evil.com/..//\\"})).unwrap();
        assert_eq!(made.url.host_str(), Some("a.com"));
        assert_eq!(made.url.path(), "/%40evil.com%2F..%2F%2F%5C");
    }
}
