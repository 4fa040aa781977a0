//! The expectations of a script step about its request.

use serde::Deserialize;

use crate::parsed_request::{ParsedRequest, RequestToolChoice, ResponseDelivery};

/// Expectations about a request. The server does not check absent fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequestExpectation {
    /// A substring of the last tool result.
    pub last_tool_result: Option<String>,
    /// Substrings of the tool results since the last model turn, one per result, in order.
    pub tool_results: Option<Vec<String>>,
    /// The names of all offered tools, in any order.
    pub tools: Option<Vec<String>>,
    /// The tool choice. The server does not check it if the format has no tool choice.
    pub tool_choice: Option<RequestToolChoice>,
    pub system: Option<String>,
    pub user: Option<String>,
    pub model: Option<String>,
    pub delivery: Option<ResponseDelivery>,
    /// Substrings of the raw request body.
    pub body_contains: Vec<String>,
    pub body_lacks: Vec<String>,
}

impl RequestExpectation {
    /// Returns a sentence for every expectation that was not met.
    pub(crate) fn unmet_expectations(&self, asked: &ParsedRequest, body: &str) -> Vec<String> {
        [
            contains("the last tool result", self.last_tool_result.as_ref(), asked.talk.tool_results.last()),
            self.tool_results.as_ref().and_then(|wanted| results(wanted, &asked.talk.tool_results)),
            self.tools.as_ref().and_then(|wanted| {
                equals("the list of offered tools", &sorted(wanted), &sorted(&asked.tools))
            }),
            self.tool_choice
                .as_ref()
                .zip(asked.tool_choice.as_ref())
                .and_then(|(wanted, found)| equals("the tool choice", wanted, found)),
            contains("the system text", self.system.as_ref(), Some(&asked.talk.system)),
            contains("the last user message", self.user.as_ref(), Some(&asked.talk.last_user)),
            self.model.as_ref().and_then(|wanted| equals("the model", wanted, &asked.model)),
            self.delivery
                .and_then(|wanted| equals("the delivery (whole or streamed)", &wanted, &asked.delivery)),
        ]
        .into_iter()
        .flatten()
        .chain(self.in_body(body))
        .collect()
    }

    fn in_body(&self, body: &str) -> Vec<String> {
        let missing = self.body_contains.iter().filter(|text| !body.contains(text.as_str()));
        let present = self.body_lacks.iter().filter(|text| body.contains(text.as_str()));
        missing
            .map(|text| format!("the request body should contain `{text}`"))
            .chain(present.map(|text| format!("the request body should not contain `{text}`")))
            .collect()
    }
}

fn contains(what: &str, wanted: Option<&String>, found: Option<&String>) -> Option<String> {
    let wanted = wanted?;
    match found {
        Some(found) if found.contains(wanted.as_str()) => None,
        Some(found) => Some(format!("{what} should contain `{wanted}`; found `{found}`")),
        None => Some(format!("{what} should contain `{wanted}`; the request has none")),
    }
}

fn results(wanted: &[String], found: &[String]) -> Option<String> {
    let fits = wanted.len() == found.len()
        && wanted.iter().zip(found).all(|(wanted, found)| found.contains(wanted.as_str()));
    (!fits).then(|| format!("the tool results should contain {wanted:?}; found {found:?}"))
}

fn equals<T: PartialEq + std::fmt::Debug>(what: &str, wanted: &T, found: &T) -> Option<String> {
    (wanted != found).then(|| format!("{what} should be {wanted:?}; found {found:?}"))
}

fn sorted(names: &[String]) -> Vec<&String> {
    let mut names: Vec<&String> = names.iter().collect();
    names.sort();
    names
}
