//! Builds the request of a tool call from its arguments, without IO and without secrets.

use haft_core::result::{ToolError, ToolErrorKind};
use http::{HeaderName, HeaderValue};
use serde_json::Value;
use url::Url;

use super::body::{BodyPlan, RestBody, body};
use super::encode;
use super::parameter::{Parameter, ParameterLocation, ReservedCharacters, line, pairs, segment};
use super::template::{ArgumentMap, MissingArgument};
use super::tool::{RequestPlan, RestTool};
use haft_core::settings::method::Method;

/// An HTTP request of a tool, ready to be sent.
#[derive(Debug, Clone)]
pub struct RestRequest {
    pub method: Method,
    pub url: Url,
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Option<RestBody>,
}

/// The plan for building the requests of an OpenAPI operation.
#[derive(Debug)]
pub struct OperationPlan {
    pub method: Method,
    /// The URL of the server, including its path.
    pub base: Url,
    pub path: Vec<PathPiece>,
    pub parameters: Vec<Parameter>,
    pub body: Option<BodyPlan>,
    /// The `Accept` header, if the OpenAPI document names the media type of the response.
    pub accept: Option<HeaderValue>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPiece {
    Text(String),
    /// The index of a parameter in [`OperationPlan::parameters`].
    Parameter(usize),
}

/// The maximum length of a URL, in bytes. Servers reject longer ones with errors that are hard to understand.
const URL_BYTES_MAX: usize = 16 * 1024;

/// Builds the request of a call.
pub fn build(tool: &RestTool, arguments: &ArgumentMap) -> Result<RestRequest, ToolError> {
    let request = match &tool.plan {
        RequestPlan::Templated(templated) => templated.request(arguments),
        RequestPlan::Operation(operation) => operation.request(arguments),
    }?;
    if request.url.as_str().len() > URL_BYTES_MAX {
        return Err(invalid(&format!(
            "the URL would have more than {URL_BYTES_MAX} bytes; shorten the arguments in the path or the query"
        )));
    }
    Ok(request)
}

impl OperationPlan {
    fn request(&self, arguments: &ArgumentMap) -> Result<RestRequest, ToolError> {
        let mut headers = Vec::new();
        headers.extend(self.accept.clone().map(|accept| (http::header::ACCEPT, accept)));
        for (parameter, value) in self.given(arguments, ParameterLocation::Header) {
            let name = header_name(&parameter.name)?;
            headers.push((
                name,
                header_value(&parameter.argument, &line(value, parameter.style, parameter.explode))?,
            ));
        }
        headers.extend(self.cookies(arguments)?);
        Ok(RestRequest {
            method: self.method,
            url: self.url(arguments)?,
            headers,
            body: self.body.as_ref().map(|plan| body(plan, arguments)).transpose()?.flatten(),
        })
    }

    fn url(&self, arguments: &ArgumentMap) -> Result<Url, ToolError> {
        let mut path = String::new();
        for piece in &self.path {
            match piece {
                PathPiece::Text(text) => path.push_str(text),
                PathPiece::Parameter(index) => path.push_str(&self.segment(*index, arguments)?),
            }
        }
        let mut url = joined(&self.base, &path)?;
        let query: Vec<String> = self
            .given(arguments, ParameterLocation::Query)
            .flat_map(|(parameter, value)| query(parameter, value))
            .collect();
        if !query.is_empty() {
            let own = url.query().map(|own| format!("{own}&")).unwrap_or_default();
            url.set_query(Some(&format!("{own}{}", query.join("&"))));
        }
        Ok(url)
    }

    fn segment(&self, index: usize, arguments: &ArgumentMap) -> Result<String, ToolError> {
        // The index always exists, because the importer creates the indices together with the list.
        let parameter = self
            .parameters
            .get(index)
            .ok_or_else(|| invalid("a path parameter is missing in the tool; this is a bug in haft"))?;
        let name = &parameter.argument;
        let value = arguments.get(name).filter(|value| !value.is_null());
        let value = value.ok_or_else(|| missing(&MissingArgument(name.clone()), "the path"))?;
        let segment = segment(&parameter.name, value, parameter.style, parameter.explode);
        if segment.is_empty() {
            return Err(invalid(&format!(
                "the argument `{name}` must not be empty: it is a part of the path"
            )));
        }
        Ok(segment)
    }

    fn cookies(&self, arguments: &ArgumentMap) -> Result<Option<(HeaderName, HeaderValue)>, ToolError> {
        let pairs: Vec<String> = self
            .given(arguments, ParameterLocation::Cookie)
            .map(|(parameter, value)| {
                let text = line(value, parameter.style, parameter.explode);
                format!("{}={}", parameter.name, encode::strict(&text))
            })
            .collect();
        if pairs.is_empty() {
            return Ok(None);
        }
        header_value("cookie", &pairs.join("; ")).map(|value| Some((http::header::COOKIE, value)))
    }

    /// Returns the parameters of one location for which the call has an argument. Treats null as absent, because null
    /// cannot be sent as text.
    fn given<'a>(
        &'a self,
        arguments: &'a ArgumentMap,
        place: ParameterLocation,
    ) -> impl Iterator<Item = (&'a Parameter, &'a Value)> {
        let of_place = self.parameters.iter().filter(move |parameter| parameter.place == place);
        of_place.filter_map(|parameter| {
            let value = arguments.get(&parameter.argument).filter(|value| !value.is_null())?;
            Some((parameter, value))
        })
    }
}

fn query(parameter: &Parameter, value: &Value) -> Vec<String> {
    let encoded = match parameter.reserved {
        ReservedCharacters::Encoded => encode::strict,
        ReservedCharacters::Kept => encode::reserved_kept,
    };
    let pairs = pairs(&parameter.name, value, parameter.style, parameter.explode);
    pairs.into_iter().map(|(name, value)| format!("{}={}", encode::strict(&name), encoded(&value))).collect()
}

/// Appends a path to the path of the server. Refuses `.` and `..`, with which an argument could reach a resource
/// outside of the operation.
pub(super) fn joined(base: &Url, path: &str) -> Result<Url, ToolError> {
    if has_dots(path) {
        return Err(invalid("`.` and `..` are not allowed as parts of the URL path"));
    }
    let mut url = base.clone();
    let own = base.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{own}{path}"));
    Ok(url)
}

/// Returns true if a segment of the path is `.` or `..`, in any spelling that the URL standard treats as such: it reads
/// a backslash as `/`, and removes tabs and line breaks.
pub(super) fn has_dots(path: &str) -> bool {
    let is_dots = |segment: &str| {
        let read: String = segment.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
        let plain = read.to_ascii_lowercase().replace("%2e", ".");
        plain == "." || plain == ".."
    };
    path.split(['/', '\\']).any(is_dots)
}

pub(super) fn header_name(name: &str) -> Result<HeaderName, ToolError> {
    HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| invalid(&format!("`{name}` is not a valid header name")))
}

/// Returns a header value. Refuses CR and LF, with which an argument could add headers.
pub(super) fn header_value(argument: &str, text: &str) -> Result<HeaderValue, ToolError> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
        invalid(&format!("haft sends the argument `{argument}` in a header, so it must be one line of text"))
    })
}

pub(super) fn missing(MissingArgument(name): &MissingArgument, wanted_by: &str) -> ToolError {
    invalid(&format!("the argument `{name}` is missing; {wanted_by} needs it"))
}

/// Creates an error about arguments, for the model. All of these errors begin with `Error:`.
pub(super) fn invalid(message: &str) -> ToolError {
    ToolError::new(ToolErrorKind::InvalidArguments, format!("Error: {message}"))
}

#[cfg(test)]
mod tests;
