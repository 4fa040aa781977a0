//! The keys of tools over HTTP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::format::{AnyJson, GlobText, Millis, QueueText, SecretText, SpecText, Ttl, UrlText};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RestTool {
    /// What a model is told about it
    pub(crate) description: String,

    /// The HTTP method; it also says what a call does to the world
    pub(crate) method: HttpMethod,

    /// Where the request goes; `${parameters.x}` is the place of an argument, not allowed in the host
    pub(crate) url: UrlText,

    /// Headers of the request; `${VAR}` is a variable, `${parameters.x}` an argument
    pub(crate) headers: Option<BTreeMap<String, SecretText>>,

    /// The queue its calls wait in
    pub(crate) queue: Option<QueueText>,

    /// How long an answer may be given again without a call, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// The JSON Schema of its arguments; without it every argument that has a place is a string
    pub(crate) parameters_schema: Option<AnyJson>,

    /// The body as JSON; a string that is nothing but `${parameters.x}` becomes that argument with its type, `${VAR}` a variable
    pub(crate) body_template: Option<AnyJson>,

    /// How an answer is read that comes in pieces
    pub(crate) streaming: Option<Streaming>,

    /// Whether lists and objects in the query are written as `key[0][prop]=value`
    #[schemars(extend("default" = false))]
    pub(crate) has_complex_query_params: Option<bool>,

    /// Arguments that are added to the query
    #[schemars(extend("default" = []))]
    pub(crate) query_param_names: Option<Vec<String>>,

    /// Whether the host may be at an address that is not public
    #[schemars(extend("default" = false))]
    pub(crate) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Streaming {
    /// `json-stream`: a JSON value in every line; `sse`: server-sent events
    #[schemars(extend("default" = "json-stream"))]
    pub(crate) mode: Option<StreamMode>,

    /// Taken off every line before it is read
    #[schemars(extend("default" = ""))]
    pub(crate) line_prefix: Option<String>,

    /// The field that says what a piece is
    #[schemars(extend("default" = "type"))]
    pub(crate) discriminator_field: Option<String>,

    /// What that field says in the last piece
    #[schemars(extend("default" = "done"))]
    pub(crate) done_value: Option<String>,

    /// The field of the last piece that holds the whole answer
    #[schemars(extend("default" = "answer"))]
    pub(crate) answer_field: Option<String>,

    /// What the field says in a piece of the answer
    #[schemars(extend("default" = "token"))]
    pub(crate) token_value: Option<String>,

    /// The field that holds such a piece
    #[schemars(extend("default" = "content"))]
    pub(crate) token_field: Option<String>,

    /// How long the stream may take
    #[schemars(extend("default" = 120_000, "x-unit" = "milliseconds"))]
    pub(crate) timeout_ms: Option<Millis>,

    /// How much may come
    #[schemars(range(min = 1), extend("default" = 4_194_304, "x-unit" = "bytes"))]
    pub(crate) max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct OpenapiSpec {
    /// The description: a file, or a URL
    pub(crate) spec: SpecText,

    /// Where requests go, instead of the server that the description names
    pub(crate) base_url: Option<UrlText>,

    /// Headers of every request; `${VAR}` is a variable
    pub(crate) headers: Option<BTreeMap<String, SecretText>>,

    /// Methods whose operations are tools
    #[schemars(extend("default" = ["get", "post", "put", "patch", "delete"]))]
    pub(crate) include_methods: Option<Vec<LowerMethod>>,

    /// Only operations with one of these tags; without this key all
    pub(crate) tag_filter: Option<Vec<String>>,

    /// Only operations that one of these patterns names, by operation id or as `GET /path`
    pub(crate) include_operations: Option<Vec<GlobText>>,

    /// No operations that one of these patterns names
    #[schemars(extend("default" = []))]
    pub(crate) exclude_operations: Option<Vec<GlobText>>,

    /// Whether deprecated operations are tools
    #[schemars(extend("default" = false))]
    pub(crate) include_deprecated: Option<bool>,

    /// The queue its calls wait in
    pub(crate) queue: Option<QueueText>,

    /// How long an answer may be given again without a call, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// What to log in with, by the name of the description's security scheme
    pub(crate) auth: Option<BTreeMap<String, Login>>,

    /// More hosts that operations may name as their server
    #[schemars(extend("default" = []))]
    pub(crate) allow_hosts: Option<Vec<String>>,

    /// Whether its host may be at an address that is not public
    #[schemars(extend("default" = false))]
    pub(crate) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Login {
    /// A key or a token
    pub(crate) token: Option<SecretText>,

    /// For `basic`
    pub(crate) username: Option<SecretText>,

    /// For `basic`
    pub(crate) password: Option<SecretText>,

    /// For OAuth client credentials
    pub(crate) client_id: Option<SecretText>,

    /// For OAuth client credentials
    pub(crate) client_secret: Option<SecretText>,

    /// Scopes to ask for
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// Where tokens are asked for, instead of where the description says
    pub(crate) token_url: Option<UrlText>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(crate) enum HttpMethod {
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
pub(crate) enum LowerMethod {
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
pub(crate) enum StreamMode {
    JsonStream,
    Sse,
}
