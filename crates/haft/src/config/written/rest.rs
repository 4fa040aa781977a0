//! Keys of tools over HTTP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::format::{AnyJson, GlobText, Millis, QueueText, SecretText, SpecText, Ttl, UrlText};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct RestTool {
    /// What a model is told about it
    pub(in crate::config) description: String,

    /// The HTTP method; it also says what a call does to the world
    pub(in crate::config) method: HttpMethod,

    /// Where the request goes; `${parameters.x}` is the place of an argument, not allowed in the host
    pub(in crate::config) url: UrlText,

    /// Headers of the request; `${VAR}` is a variable, `${parameters.x}` an argument
    pub(in crate::config) headers: Option<BTreeMap<String, SecretText>>,

    /// The queue its calls wait in
    pub(in crate::config) queue: Option<QueueText>,

    /// How long an answer may be given again without a call, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(in crate::config) cache: Option<Ttl>,

    /// The JSON Schema of its arguments; without it every argument that has a place is a string
    pub(in crate::config) parameters_schema: Option<AnyJson>,

    /// The body as JSON; a string that is nothing but `${parameters.x}` becomes that argument with its type, `${VAR}` a variable
    pub(in crate::config) body_template: Option<AnyJson>,

    /// How an answer is read that comes in pieces
    pub(in crate::config) streaming: Option<Streaming>,

    /// Whether lists and objects in the query are written as `key[0][prop]=value`
    #[schemars(extend("default" = false))]
    pub(in crate::config) has_complex_query_params: Option<bool>,

    /// Arguments that are added to the query
    #[schemars(extend("default" = []))]
    pub(in crate::config) query_param_names: Option<Vec<String>>,

    /// Whether the host may be at an address that is not public
    #[schemars(extend("default" = false))]
    pub(in crate::config) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Streaming {
    /// `json-stream`: a JSON value in every line; `sse`: server-sent events
    #[schemars(extend("default" = "json-stream"))]
    pub(in crate::config) mode: Option<StreamMode>,

    /// Taken off every line before it is read
    #[schemars(extend("default" = ""))]
    pub(in crate::config) line_prefix: Option<String>,

    /// The field that says what a piece is
    #[schemars(extend("default" = "type"))]
    pub(in crate::config) discriminator_field: Option<String>,

    /// What that field says in the last piece
    #[schemars(extend("default" = "done"))]
    pub(in crate::config) done_value: Option<String>,

    /// The field of the last piece that holds the whole answer
    #[schemars(extend("default" = "answer"))]
    pub(in crate::config) answer_field: Option<String>,

    /// What the field says in a piece of the answer
    #[schemars(extend("default" = "token"))]
    pub(in crate::config) token_value: Option<String>,

    /// The field that holds such a piece
    #[schemars(extend("default" = "content"))]
    pub(in crate::config) token_field: Option<String>,

    /// How long the stream may take
    #[schemars(extend("default" = 120_000, "x-unit" = "milliseconds"))]
    pub(in crate::config) timeout_ms: Option<Millis>,

    /// How much may come
    #[schemars(range(min = 1), extend("default" = 4_194_304, "x-unit" = "bytes"))]
    pub(in crate::config) max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct OpenapiSpec {
    /// The description: a file, or a URL
    pub(in crate::config) spec: SpecText,

    /// Where requests go, instead of the server that the description names
    pub(in crate::config) base_url: Option<UrlText>,

    /// Headers of every request; `${VAR}` is a variable
    pub(in crate::config) headers: Option<BTreeMap<String, SecretText>>,

    /// Methods whose operations are tools
    #[schemars(extend("default" = ["get", "post", "put", "patch", "delete"]))]
    pub(in crate::config) include_methods: Option<Vec<LowerMethod>>,

    /// Only operations with one of these tags; without this key all
    pub(in crate::config) tag_filter: Option<Vec<String>>,

    /// Only operations that one of these patterns names, by operation id or as `GET /path`
    pub(in crate::config) include_operations: Option<Vec<GlobText>>,

    /// No operations that one of these patterns names
    #[schemars(extend("default" = []))]
    pub(in crate::config) exclude_operations: Option<Vec<GlobText>>,

    /// Whether deprecated operations are tools
    #[schemars(extend("default" = false))]
    pub(in crate::config) include_deprecated: Option<bool>,

    /// The queue its calls wait in
    pub(in crate::config) queue: Option<QueueText>,

    /// How long an answer may be given again without a call, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(in crate::config) cache: Option<Ttl>,

    /// What to log in with, by the name of the description's security scheme
    pub(in crate::config) auth: Option<BTreeMap<String, Login>>,

    /// More hosts that operations may name as their server
    #[schemars(extend("default" = []))]
    pub(in crate::config) allow_hosts: Option<Vec<String>>,

    /// Whether its host may be at an address that is not public
    #[schemars(extend("default" = false))]
    pub(in crate::config) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::config) struct Login {
    /// A key or a token
    pub(in crate::config) token: Option<SecretText>,

    /// For `basic`
    pub(in crate::config) username: Option<SecretText>,

    /// For `basic`
    pub(in crate::config) password: Option<SecretText>,

    /// For OAuth client credentials
    pub(in crate::config) client_id: Option<SecretText>,

    /// For OAuth client credentials
    pub(in crate::config) client_secret: Option<SecretText>,

    /// Scopes to ask for
    #[schemars(extend("default" = []))]
    pub(in crate::config) scopes: Option<Vec<String>>,

    /// Where tokens are asked for, instead of where the description says
    pub(in crate::config) token_url: Option<UrlText>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(in crate::config) enum HttpMethod {
    #[serde(rename = "GET")]
    Get,
    #[serde(rename = "POST")]
    Post,
    #[serde(rename = "PUT")]
    Put,
    #[serde(rename = "DELETE")]
    Delete,
    #[serde(rename = "PATCH")]
    Patch,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::config) enum LowerMethod {
    Get,
    Head,
    Options,
    Post,
    Put,
    Patch,
    Delete,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::config) enum StreamMode {
    JsonStream,
    Sse,
}
