//! Resolves HTTP tools.

use std::collections::BTreeMap;
use std::fmt;

use haft_core::glob::ToolGlob;
use haft_core::name::{GroupName, QueueName};
use haft_core::settings::method::Method;
use haft_core::settings::rest::{
    DeprecatedOperations, METHODS_DEFAULT, QueryForm, StreamMode, StreamSettings,
};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::expand::{ExpandError, VariableSource, expand};
use super::position::child;
use super::resolve::{ConfigResolver, cache_for, count, duration};
use super::resolved::{self, CacheTtl};
use super::value_format::{GlobText, SecretText, UrlText};
use super::written;

/// The configured HTTP tools. Variables in their texts are not expanded yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RestSettings {
    pub tools: BTreeMap<String, RestToolSettings>,
    pub specs: BTreeMap<String, OpenapiSettings>,
}

/// A tool that sends one HTTP request.
#[derive(Debug, Clone, PartialEq)]
pub struct RestToolSettings {
    pub description: String,
    pub method: Method,
    pub url: Secret,
    pub headers: BTreeMap<String, Secret>,
    /// A group that the tool's entry names.
    pub group: Option<GroupName>,
    pub queue: Option<QueueName>,
    pub cache: Option<CacheTtl>,
    pub schema: Option<Value>,
    pub body: Option<Value>,
    pub streaming: Option<StreamSettings>,
    pub query: Vec<String>,
    pub query_form: QueryForm,
    pub allow_private: bool,
}

/// The settings of an OpenAPI document whose operations become tools.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenapiSettings {
    /// The path or URL of the document.
    pub source: Secret,
    pub base_url: Option<Secret>,
    pub headers: BTreeMap<String, Secret>,
    pub methods: Vec<Method>,
    pub tags: Vec<String>,
    pub include: Vec<ToolGlob>,
    pub exclude: Vec<ToolGlob>,
    pub deprecated: DeprecatedOperations,
    pub queue: Option<QueueName>,
    pub cache: Option<CacheTtl>,
    pub logins: BTreeMap<String, RestCredentials>,
    pub hosts: Vec<String>,
    pub allow_private: bool,
}

/// The credentials for one security scheme.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RestCredentials {
    pub token: Option<Secret>,
    pub username: Option<Secret>,
    pub password: Option<Secret>,
    pub client_id: Option<Secret>,
    pub client_secret: Option<Secret>,
    pub scopes: Vec<String>,
    pub token_url: Option<Secret>,
}

/// A text that may be secret, in the form of the file: its variables are not expanded.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text with its variables expanded.
    pub fn expand(&self, variables: VariableSource<'_>) -> Result<String, ExpandError> {
        expand(&self.0, variables)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl RestSettings {
    /// Returns the queue and the cache time that a tool inherits from its REST tool or OpenAPI entry, found by name and
    /// groups.
    pub fn policy_of<'a>(
        &'a self,
        tool: &str,
        mut groups: impl Iterator<Item = &'a str>,
    ) -> (Option<QueueName>, Option<CacheTtl>) {
        if let Some(tool) = self.tools.get(tool) {
            return (tool.queue.clone(), tool.cache);
        }
        let spec = groups.find_map(|group| self.specs.get(group));
        spec.map_or((None, None), |spec| (spec.queue.clone(), spec.cache))
    }
}

type ConfiguredQueues = BTreeMap<QueueName, resolved::QueueSettings>;

impl ConfigResolver<'_> {
    pub(super) fn rest(
        &mut self,
        tools: Option<BTreeMap<String, written::RawRestTool>>,
        specs: Option<BTreeMap<String, written::RawOpenapiSpec>>,
        queues: &ConfiguredQueues,
    ) -> RestSettings {
        let tools = tools.unwrap_or_default().into_iter();
        let specs = specs.unwrap_or_default().into_iter();
        RestSettings {
            tools: tools.map(|(name, tool)| self.rest_tool(name, tool, queues)).collect(),
            specs: specs.map(|(name, spec)| self.spec(name, spec, queues)).collect(),
        }
    }

    fn rest_tool(
        &mut self,
        name: String,
        tool: written::RawRestTool,
        queues: &ConfiguredQueues,
    ) -> (String, RestToolSettings) {
        let path = child("restTools", &name);
        let queue = tool.queue.and_then(|queue| self.queue(&child(&path, "queue"), &queue.0, queues));
        let group =
            tool.group.and_then(|group| self.checked_name(&child(&path, "group"), GroupName::new(&group.0)));
        let schema = tool.parameters_schema.map(|schema| schema.0);
        if schema.as_ref().is_some_and(|schema| schema["type"] != "object") {
            let message = "expected a JSON Schema whose `type` is `object`".to_owned();
            self.wrong(&child(&path, "parametersSchema"), message);
        }
        let complex = tool.has_complex_query_params.unwrap_or(false);
        let meant = RestToolSettings {
            description: tool.description,
            method: tool.method.into(),
            url: url(tool.url),
            headers: headers(tool.headers),
            group,
            queue,
            cache: tool.cache.as_ref().map(cache_for),
            schema,
            body: tool.body_template.map(|body| body.0),
            streaming: tool.streaming.map(streaming),
            query: tool.query_param_names.unwrap_or_default(),
            query_form: if complex { QueryForm::Brackets } else { QueryForm::Plain },
            allow_private: tool.allow_private_addresses.unwrap_or(false),
        };
        (name, meant)
    }

    fn spec(
        &mut self,
        name: String,
        spec: written::RawOpenapiSpec,
        queues: &ConfiguredQueues,
    ) -> (String, OpenapiSettings) {
        let path = child("openapiSpecs", &name);
        let globs = |resolver: &mut Self, key: &str, globs: Option<Vec<GlobText>>| {
            resolver.globs(&child(&path, key), &globs.unwrap_or_default())
        };
        let include = globs(self, "includeOperations", spec.include_operations);
        let exclude = globs(self, "excludeOperations", spec.exclude_operations);
        let queue = spec.queue.and_then(|queue| self.queue(&child(&path, "queue"), &queue.0, queues));
        let deprecated = spec.include_deprecated.unwrap_or(false);
        let methods = spec.include_methods.map(|methods| methods.into_iter().map(Method::from).collect());
        let meant = OpenapiSettings {
            source: Secret(spec.spec.0),
            base_url: spec.base_url.map(url),
            headers: headers(spec.headers),
            methods: methods.unwrap_or_else(|| METHODS_DEFAULT.to_vec()),
            tags: spec.tag_filter.unwrap_or_default(),
            include,
            exclude,
            deprecated: if deprecated { DeprecatedOperations::Kept } else { DeprecatedOperations::LeftOut },
            queue,
            cache: spec.cache.as_ref().map(cache_for),
            logins: spec
                .auth
                .unwrap_or_default()
                .into_iter()
                .map(|(name, written)| (name, login(written)))
                .collect(),
            hosts: spec.allow_hosts.unwrap_or_default(),
            allow_private: spec.allow_private_addresses.unwrap_or(false),
        };
        (name, meant)
    }
}

impl OpenapiSettings {
    /// Creates the settings of an OpenAPI document, with all defaults.
    pub fn of(source: Secret) -> Self {
        Self {
            source,
            base_url: None,
            headers: BTreeMap::new(),
            methods: METHODS_DEFAULT.to_vec(),
            tags: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            deprecated: DeprecatedOperations::LeftOut,
            queue: None,
            cache: None,
            logins: BTreeMap::new(),
            hosts: Vec::new(),
            allow_private: false,
        }
    }

    /// Returns the path or URL of the OpenAPI document, without the parts that may contain a secret: user, password,
    /// query and fragment.
    pub fn place(&self) -> String {
        let is_url = ["http://", "https://"].iter().any(|scheme| self.source.0.starts_with(scheme));
        match Url::parse(&self.source.0) {
            Ok(mut url) if is_url => {
                url.set_query(None);
                url.set_fragment(None);
                // An `http` URL has a host, so neither call can fail.
                let _ = url.set_username("");
                let _ = url.set_password(None);
                url.to_string()
            }
            Ok(_) | Err(_) => self.source.0.clone(),
        }
    }
}

fn url(UrlText(text): UrlText) -> Secret {
    Secret(text)
}

fn headers(written: Option<BTreeMap<String, SecretText>>) -> BTreeMap<String, Secret> {
    written.unwrap_or_default().into_iter().map(|(name, value)| (name, value.0)).collect()
}

fn login(written: written::RawRestCredentials) -> RestCredentials {
    let secret = |text: Option<SecretText>| text.map(|text| text.0);
    RestCredentials {
        token: secret(written.token),
        username: secret(written.username),
        password: secret(written.password),
        client_id: secret(written.client_id),
        client_secret: secret(written.client_secret),
        scopes: written.scopes.unwrap_or_default(),
        token_url: written.token_url.map(url),
    }
}

fn streaming(written: written::RawStreaming) -> StreamSettings {
    let default = StreamSettings::default();
    StreamSettings {
        mode: match written.mode {
            Some(written::RawStreamMode::Sse) => StreamMode::Sse,
            Some(written::RawStreamMode::JsonStream) | None => StreamMode::JsonStream,
        },
        line_prefix: written.line_prefix.unwrap_or(default.line_prefix),
        discriminator_field: written.discriminator_field.unwrap_or(default.discriminator_field),
        done_value: written.done_value.unwrap_or(default.done_value),
        answer_field: written.answer_field.unwrap_or(default.answer_field),
        token_value: written.token_value.unwrap_or(default.token_value),
        token_field: written.token_field.unwrap_or(default.token_field),
        timeout: written.timeout.map_or(default.timeout, duration),
        bytes_max: written.max_bytes.map_or(default.bytes_max, count),
    }
}
