//! `POST /api/v1/runs`: starts a run, in the same way as a background response.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use haft_core::digest::Digest;
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::runs::{self, RunObject};
use super::tools::{self, ToolEntries};
use crate::auth::Caller;
use crate::body::JsonObject;
use crate::error::ApiError;
use crate::responses::{self, RequestField, RunNarrowing, invalid};
use crate::server::ServerState;

/// The maximum number of tools that a request can list.
const TOOLS_MAX: usize = 128;

/// The longest timeout that a request can ask for, in seconds. The timeout of the agent also applies.
const TIMEOUT_MAX_S: u32 = 7 * 24 * 3600;

/// The largest cost limit that a request can ask for, in US dollars.
const COST_MAX_USD: f64 = 1_000_000.0;

/// The request fields that a background response has too, with the same meaning.
const RESPONSE_FIELDS: [&str; 5] =
    ["input", "instructions", "max_tool_calls", "max_output_tokens", "metadata"];

/// A new run. Every limit can only lower the limit of the agent.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used; the body is read field by field")]
pub(crate) struct NewRunBody {
    /// The agent; not together with `model`
    agent: Option<String>,
    /// The model as `PROVIDER/MODEL`; without `agent` and `model`, the default model of the server
    model: Option<String>,
    /// A string, or input items of the Open Responses specification
    input: Value,
    /// Further instructions for the model
    instructions: Option<String>,
    /// The names of the only tools that the model may call: for an agent some of its own, for a model any tools that
    /// the key may use. A model without this list has no tools
    tools: Option<Vec<String>>,
    max_turns: Option<u32>,
    max_tool_calls: Option<u32>,
    max_output_tokens: Option<u32>,
    max_cost_usd: Option<f64>,
    /// The time limit of the run, in seconds
    timeout_s: Option<u32>,
    /// Up to 16 pairs of strings
    metadata: Option<Map<String, Value>>,
}

/// `POST /api/v1/runs`: starts a run.
pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    headers: HeaderMap,
    JsonObject(body): JsonObject,
) -> Result<(StatusCode, Json<RunObject>), ApiError> {
    let digest = Digest::of_value(&Value::Object(body.clone())).to_string();
    let request = NewRun::parse(body)?;
    let is_agent = |name: &str| state.agents.get().get(name).is_some();
    request.check_names(is_agent)?;
    let entries = match (&request.agent, &request.tools) {
        (None, Some(names)) if !names.is_empty() => tools::entries(&state, &caller, names).await?,
        (None | Some(_), _) => ToolEntries::default(),
    };
    let (body, narrowing) = request.into_response(entries);
    let started = responses::start_run(&state, &caller, &headers, (body, digest), narrowing).await?;
    let run = runs::started(&state, &caller, started).await;
    Ok((StatusCode::ACCEPTED, Json(run)))
}

/// A request whose fields were checked.
#[derive(Debug)]
struct NewRun {
    agent: Option<String>,
    model: Option<String>,
    tools: Option<Vec<String>>,
    turns_max: Option<u32>,
    usd_max: Option<f64>,
    timeout: Option<Duration>,
    /// The fields of [`RESPONSE_FIELDS`], which are checked when the response starts.
    others: Map<String, Value>,
}

impl NewRun {
    /// Reads and checks a body. Refuses unknown fields, because a client that misspells a limit must not start a run
    /// without it.
    fn parse(mut body: Map<String, Value>) -> Result<Self, ApiError> {
        let others = RESPONSE_FIELDS.iter().filter_map(|name| body.remove_entry(*name)).collect();
        let mut take = |name: &'static str| RequestField::new(name, body.remove(name));
        let (agent, model) = (take("agent").text()?, take("model").text()?);
        let tools = names(&take("tools"))?;
        let turns_max = take("max_turns").count(1)?;
        let usd_max = take("max_cost_usd").number(0.0, COST_MAX_USD)?;
        let timeout = take("timeout_s");
        let timeout = match timeout.count(1)? {
            Some(seconds) if seconds > TIMEOUT_MAX_S => {
                return Err(timeout.wrong(&format!("at most {TIMEOUT_MAX_S}")));
            }
            seconds => seconds.map(|seconds| Duration::from_secs(u64::from(seconds))),
        };
        if let Some(unknown) = body.keys().next() {
            return Err(invalid(unknown.clone(), format!("the request has the unknown field `{unknown}`")));
        }
        if agent.is_some() && model.is_some() {
            return Err(invalid("model", "`agent` and `model` cannot be used together"));
        }
        Ok(Self { agent, model, tools, turns_max, usd_max, timeout, others })
    }

    fn check_names(&self, is_agent: impl Fn(&str) -> bool) -> Result<(), ApiError> {
        match (&self.agent, &self.model) {
            (Some(agent), _) if !is_agent(agent) => {
                Err(invalid("agent", format!("there is no agent `{agent}`")).with_code("agent_not_found"))
            }
            (None, Some(model)) if is_agent(model) => Err(invalid(
                "model",
                format!("`{model}` is an agent, not a model; put this name into `agent`"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the body of the background response, and the limits that such a body cannot express.
    fn into_response(self, entries: ToolEntries) -> (Map<String, Value>, RunNarrowing) {
        let mut body = self.others;
        let is_agent = self.agent.is_some();
        body.insert("background".into(), true.into());
        if let Some(name) = self.agent.or(self.model) {
            body.insert("model".into(), name.into());
        }
        let allowed_tools = self.tools.filter(|_| is_agent);
        if !is_agent {
            body.insert("tools".into(), entries.tools.into());
        }
        let narrowing = RunNarrowing {
            turns_max: self.turns_max,
            usd_max: self.usd_max,
            timeout: self.timeout,
            allowed_tools,
            http_tools: entries.http_tools,
        };
        (body, narrowing)
    }
}

/// Reads the names of tools.
fn names(field: &RequestField) -> Result<Option<Vec<String>>, ApiError> {
    let Some(written) = field.array()? else { return Ok(None) };
    if written.len() > TOOLS_MAX {
        return Err(field.wrong(&format!("a list of at most {TOOLS_MAX} names")));
    }
    let name =
        |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| field.wrong("a list of names"));
    written.iter().map(name).collect::<Result<Vec<_>, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(body: Value) -> Result<NewRun, ApiError> {
        match body {
            Value::Object(body) => NewRun::parse(body),
            _ => panic!("not an object"),
        }
    }

    #[test]
    fn error_names_the_invalid_or_unknown_field() {
        let check = |body: Value, param: &str| {
            let error = parse(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
        };
        check(json!({"input": "x", "command": "sh"}), "command");
        check(json!({"input": "x", "max_turn": 1}), "max_turn");
        check(json!({"input": "x", "max_turns": 0}), "max_turns");
        check(json!({"input": "x", "max_cost_usd": -1}), "max_cost_usd");
        check(json!({"input": "x", "timeout_s": 10_000_000}), "timeout_s");
        check(json!({"input": "x", "tools": [1]}), "tools");
        check(json!({"input": "x", "agent": "a", "model": "m"}), "model");
        check(json!({"input": "x", "background": false}), "background");
        check(json!({"input": "x", "store": false}), "store");
    }

    #[test]
    fn every_limit_of_the_request_reaches_the_run() {
        let written = json!({"input": "x", "max_turns": 2, "max_cost_usd": 0.5, "timeout_s": 7});
        let (_, narrowing) = parse(written).unwrap().into_response(ToolEntries::default());
        let RunNarrowing { turns_max, usd_max, timeout, allowed_tools, http_tools } = narrowing;
        assert_eq!(
            (turns_max, usd_max, timeout, allowed_tools, http_tools),
            (Some(2), Some(0.5), Some(Duration::from_secs(7)), None, Vec::new())
        );
    }

    #[test]
    fn tool_names_narrow_an_agents_tools_and_select_a_models_tools() {
        let tools = json!(["docs__look", "bash"]);
        let of_agent = parse(json!({"input": "x", "agent": "a", "tools": tools})).unwrap();
        let (body, narrowing) = of_agent.into_response(ToolEntries::default());
        assert_eq!((body.get("tools"), &body["model"]), (None, &json!("a")));
        assert_eq!(narrowing.allowed_tools, Some(vec!["docs__look".to_owned(), "bash".to_owned()]));
        let of_model = parse(json!({"input": "x", "model": "p/m", "tools": tools})).unwrap();
        let entries =
            ToolEntries { tools: vec![json!({"type": "haft:list"})], http_tools: vec!["list".into()] };
        let (body, narrowing) = of_model.into_response(entries);
        assert_eq!((&body["tools"], narrowing.allowed_tools), (&json!([{"type": "haft:list"}]), None));
        assert_eq!(narrowing.http_tools, ["list"]);
    }
}
