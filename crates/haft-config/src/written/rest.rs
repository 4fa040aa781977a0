//! The keys of tools over HTTP.

use std::collections::BTreeMap;

use haft_core::settings::method::Method;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::value_format::{
    AnyJson, GlobText, GroupText, Millis, QueueText, SecretText, SpecText, Ttl, UrlText, words,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawRestTool {
    /// The description that models see
    pub(crate) description: String,

    /// The HTTP method; it also sets the effects of a call
    pub(crate) method: RawHttpMethod,

    /// The URL of the request; `${parameters.x}` is a placeholder for an argument and not allowed in the host
    pub(crate) url: UrlText,

    /// Headers of the request; `${VAR}` is a variable, `${parameters.x}` an argument
    pub(crate) headers: Option<BTreeMap<String, SecretText>>,

    /// A group that the tool belongs to, in addition to those of `groups` that match its name
    pub(crate) group: Option<GroupText>,

    /// The queue for its calls
    pub(crate) queue: Option<QueueText>,

    /// The time for which an output is cached, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// The JSON Schema of its arguments; without it every placeholder is a string argument
    pub(crate) parameters_schema: Option<AnyJson>,

    /// The body as JSON; a string that contains only `${parameters.x}` becomes that argument with its type, `${VAR}` is a variable
    pub(crate) body_template: Option<AnyJson>,

    /// Settings for a streamed response
    pub(crate) streaming: Option<RawStreaming>,

    /// Whether lists and objects are written into the query as `key[0][prop]=value`
    #[schemars(extend("default" = false))]
    pub(crate) has_complex_query_params: Option<bool>,

    /// Arguments to add to the query
    #[schemars(extend("default" = []))]
    pub(crate) query_param_names: Option<Vec<String>>,

    /// Whether the host may have a private address
    #[schemars(extend("default" = false))]
    pub(crate) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawStreaming {
    /// `json-stream`: a JSON value in every line; `sse`: server-sent events
    #[schemars(extend("default" = "json-stream"))]
    pub(crate) mode: Option<RawStreamMode>,

    /// A prefix to remove from every line
    #[schemars(extend("default" = ""))]
    pub(crate) line_prefix: Option<String>,

    /// The field with the kind of a piece
    #[schemars(extend("default" = "type"))]
    pub(crate) discriminator_field: Option<String>,

    /// The value of `discriminatorField` in the last piece
    #[schemars(extend("default" = "done"))]
    pub(crate) done_value: Option<String>,

    /// The field of the last piece that has the whole answer
    #[schemars(extend("default" = "answer"))]
    pub(crate) answer_field: Option<String>,

    /// The value of `discriminatorField` in a piece of the answer
    #[schemars(extend("default" = "token"))]
    pub(crate) token_value: Option<String>,

    /// The field with the text of such a piece
    #[schemars(extend("default" = "content"))]
    pub(crate) token_field: Option<String>,

    /// The longest time of the stream
    #[schemars(extend("default" = 120_000, "x-unit" = "milliseconds"))]
    pub(crate) timeout: Option<Millis>,

    /// The most bytes of the stream
    #[schemars(range(min = 1), extend("default" = 4_194_304, "x-unit" = "bytes"))]
    pub(crate) max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawOpenapiSpec {
    /// The description: a file, or a URL
    pub(crate) spec: SpecText,

    /// The base URL of requests, instead of the server in the description
    pub(crate) base_url: Option<UrlText>,

    /// Headers of every request; `${VAR}` is a variable
    pub(crate) headers: Option<BTreeMap<String, SecretText>>,

    /// The methods whose operations become tools
    #[schemars(extend("default" = ["get", "post", "put", "patch", "delete"]))]
    pub(crate) include_methods: Option<Vec<RawOperationMethod>>,

    /// Use only operations with one of these tags; by default all
    pub(crate) tag_filter: Option<Vec<String>>,

    /// Patterns of operations to use, by operation id or as `GET /path`; by default all
    pub(crate) include_operations: Option<Vec<GlobText>>,

    /// Patterns of operations to leave out
    #[schemars(extend("default" = []))]
    pub(crate) exclude_operations: Option<Vec<GlobText>>,

    /// Whether deprecated operations become tools
    #[schemars(extend("default" = false))]
    pub(crate) include_deprecated: Option<bool>,

    /// The queue for its calls
    pub(crate) queue: Option<QueueText>,

    /// The time for which an output is cached, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// Credentials, by the name of a security scheme in the description
    pub(crate) auth: Option<BTreeMap<String, RawRestCredentials>>,

    /// More hosts that operations may use as their server
    #[schemars(extend("default" = []))]
    pub(crate) allow_hosts: Option<Vec<String>>,

    /// Whether its host may have a private address
    #[schemars(extend("default" = false))]
    pub(crate) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawRestCredentials {
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

    /// Scopes to request
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// The token endpoint, instead of the one in the description
    pub(crate) token_url: Option<UrlText>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawStreamMode {
    JsonStream,
    Sse,
}

words! {
    pub(crate) RawHttpMethod for Method { "GET" Get, "POST" Post, "PUT" Put, "DELETE" Delete, "PATCH" Patch }
    pub(crate) RawOperationMethod for Method {
        "get" Get, "head" Head, "options" Options, "post" Post, "put" Put, "patch" Patch, "delete" Delete
    }
}
