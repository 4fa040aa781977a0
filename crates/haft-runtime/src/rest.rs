//! Loads HTTP tools from the configuration: reads OpenAPI documents, expands variables, and reports entries that cannot
//! be used.

mod description_cache;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use haft_core::name::ToolName;
use haft_core::tool::{ToolDefinition, ToolFacts};
use haft_sandbox::Home;
use haft_tools::rest::openapi::{self, ImportResult, ImportSettings, OpenApiSource, OperationFilter};
use haft_tools::rest::{
    AllowedHosts, ExpectedContent, PrivateAddressRule, RequestPlan, RequestTemplates, RestService, RestTool,
    TemplateSettings,
};
use http::HeaderName;
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use haft_config::expand::{ExpandError, VariableSource, expand};
use haft_config::resolved::{self, OpenapiSettings, Secret};

pub use description_cache::Freshness;

/// The HTTP tools that could be loaded, and the problems with the other entries.
#[derive(Debug, Default)]
pub struct LoadedRestTools {
    /// The HTTP tools that can be called.
    pub tools: Vec<RestTool>,
    /// The configuration entries that haft cannot use.
    pub problems: Vec<RestConfigProblem>,
}

/// A configured entry that cannot be used. The other entries still work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestConfigProblem {
    /// The configuration key of the entry.
    pub key: String,
    /// The problem, as a message for the operator.
    pub message: String,
}

/// The inputs for loading HTTP tools, apart from the configuration.
#[derive(Clone, Copy)]
pub struct RestLoadContext<'a> {
    /// The home directory whose cache stores fetched OpenAPI documents.
    pub home: Option<&'a Home>,
    /// Resolves `${VARIABLE}` in configured values.
    pub variables: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Selects whether a cached OpenAPI document may be used.
    pub freshness: Freshness,
}

/// Loads all configured tools. A problem with one entry does not affect the others.
pub async fn load(config: &resolved::RestSettings, around: RestLoadContext<'_>) -> LoadedRestTools {
    let mut loaded = LoadedRestTools::default();
    for (name, tool) in &config.tools {
        let key = format!("restTools.{name}");
        loaded.take(&key, written_tool(name, tool, around.variables).map(|tool| vec![tool]));
    }
    for (name, spec) in &config.specs {
        let key = format!("openapiSpecs.{name}");
        loaded.take(&key, import(name, spec, around).await.map(|imported| imported.tools));
    }
    loaded
}

impl LoadedRestTools {
    /// Adds the tools of one entry. If a tool has the name of an earlier tool, reports a problem and keeps the earlier
    /// tool.
    fn take(&mut self, key: &str, made: Result<Vec<RestTool>, String>) {
        match made {
            Ok(tools) => {
                for tool in tools {
                    let name = &tool.definition.name;
                    if self.tools.iter().any(|other| other.definition.name == *name) {
                        let message = format!("another REST tool already has the name `{name}`");
                        self.problems.push(RestConfigProblem { key: key.to_owned(), message });
                    } else {
                        self.tools.push(tool);
                    }
                }
            }
            Err(message) => self.problems.push(RestConfigProblem { key: key.to_owned(), message }),
        }
    }
}

/// Reads one OpenAPI document and builds its tools.
pub async fn import(
    name: &str,
    spec: &OpenapiSettings,
    around: RestLoadContext<'_>,
) -> Result<ImportResult, String> {
    let expanded = |key: &str, secret: &Secret| {
        secret.expand(around.variables).map_err(|error| format!("`{key}`: {error}"))
    };
    let url = |key: &str, secret: &Secret| {
        let text = expanded(key, secret)?;
        Url::parse(&text).map_err(|error| format!("`{key}` is not a valid URL: {error}"))
    };
    let headers = headers(&spec.headers, around.variables)?;
    let base_url = spec.base_url.as_ref().map(|text| url("baseUrl", text)).transpose()?;
    let mut logins = BTreeMap::new();
    for (scheme, login) in &spec.logins {
        let part = |key: &str, secret: &Option<Secret>| {
            secret.as_ref().map(|secret| expanded(&format!("auth.{scheme}.{key}"), secret)).transpose()
        };
        let login = openapi::SchemeCredentials {
            token: part("token", &login.token)?.map(SecretString::from),
            username: part("username", &login.username)?,
            password: part("password", &login.password)?.map(SecretString::from),
            client_id: part("clientId", &login.client_id)?,
            client_secret: part("clientSecret", &login.client_secret)?.map(SecretString::from),
            scopes: login.scopes.clone(),
            token_url: login.token_url.as_ref().map(|text| url("tokenUrl", text)).transpose()?,
        };
        logins.insert(scheme.clone(), login);
    }
    let documents =
        match OpenApiSource::parse(&expanded("spec", &spec.source)?).map_err(|error| error.to_string())? {
            OpenApiSource::File(path) => read_file(&path).await?,
            OpenApiSource::Url(url) => {
                let private = spec.allow_private.then_some(PrivateAddressRule::Allowed);
                // The headers contain credentials for the API. The OpenAPI document may be on another host, which must
                // not get these credentials.
                let is_service = base_url
                    .as_ref()
                    .is_none_or(|base| AllowedHosts::named(base).with_hosts(&spec.hosts).has_origin(&url));
                let sent = if is_service { headers.as_slice() } else { &[] };
                description_cache::read(&url, private, sent, around).await?
            }
        };
    let settings = ImportSettings {
        name,
        base_url,
        headers,
        logins,
        filter: OperationFilter {
            methods: spec.methods.clone(),
            tags: spec.tags.clone(),
            include: spec.include.clone(),
            exclude: spec.exclude.clone(),
            deprecated: spec.deprecated,
        },
        hosts: spec.hosts.clone(),
        private: spec.allow_private.then_some(PrivateAddressRule::Allowed),
    };
    openapi::import(&documents, settings).map_err(|error| error.to_string())
}

/// Reads an OpenAPI document on a blocking thread, because parsing a large one would block other tasks.
async fn read_file(path: &Path) -> Result<openapi::Documents, String> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || OpenApiSource::read_file(&path)).await;
    read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

fn headers(
    written: &BTreeMap<String, Secret>,
    variables: VariableSource<'_>,
) -> Result<Vec<(HeaderName, SecretString)>, String> {
    let made = written.iter().map(|(name, value)| {
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            format!("`headers` contains `{name}`, which is not a valid name of an HTTP header")
        })?;
        let value = value.expand(variables).map_err(|error| format!("`headers.{name}`: {error}"))?;
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(format!("the value of `headers.{name}` must be one line of text"));
        }
        Ok((header, SecretString::from(value)))
    });
    made.collect()
}

fn written_tool(
    name: &str,
    tool: &resolved::RestToolSettings,
    variables: VariableSource<'_>,
) -> Result<RestTool, String> {
    let url = tool.url.expand(variables).map_err(|error| format!("`url`: {error}"))?;
    let mut headers = BTreeMap::new();
    for (header, value) in &tool.headers {
        let value = value.expand(variables).map_err(|error| format!("`headers.{header}`: {error}"))?;
        headers.insert(header.clone(), SecretString::from(value));
    }
    let body = tool.body.as_ref().map(|body| expanded(body, variables)).transpose();
    let body = body.map_err(|error| format!("`bodyTemplate`: {error}"))?;
    let templated = RequestTemplates::new(&TemplateSettings {
        method: tool.method,
        url: &url,
        headers: &headers,
        schema: tool.schema.as_ref(),
        body,
        query: tool.query.clone(),
        query_form: tool.query_form,
    });
    let templated = templated.map_err(|error| error.to_string())?;
    let reach = AllowedHosts::named(&templated.origin);
    let reach = if tool.allow_private { reach.with_private(PrivateAddressRule::Allowed) } else { reach };
    Ok(RestTool {
        definition: ToolDefinition {
            name: ToolName::sanitize(name),
            description: tool.description.clone(),
            input_schema: templated.schema.clone(),
            output_schema: None,
            effects: tool.method.effects(),
            groups: tool.group.iter().cloned().collect(),
            facts: ToolFacts::default(),
            raw: None,
        },
        plan: RequestPlan::Templated(templated),
        service: Arc::new(RestService::new(reach, Vec::new(), BTreeMap::new())),
        expected: ExpectedContent::Anything,
        streaming: tool.streaming.clone(),
        credentials: Vec::new(),
    })
}

/// Expands variables in string values, never in keys.
fn expanded(value: &Value, variables: VariableSource<'_>) -> Result<Value, ExpandError> {
    Ok(match value {
        Value::String(text) => Value::String(expand(text, variables)?),
        Value::Array(items) => {
            items.iter().map(|item| expanded(item, variables)).collect::<Result<_, _>>().map(Value::Array)?
        }
        Value::Object(members) => {
            let each = |(key, member): (&String, &Value)| Ok((key.clone(), expanded(member, variables)?));
            members.iter().map(each).collect::<Result<_, _>>().map(Value::Object)?
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    })
}

impl std::fmt::Debug for RestLoadContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RestLoadContext").field("freshness", &self.freshness).finish_non_exhaustive()
    }
}
