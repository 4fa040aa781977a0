//! The configuration keys of HTTP tools, as the configuration file contains them, before defaults are applied.

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

    /// The HTTP method; it also determines the effects of the tool
    pub(crate) method: RawHttpMethod,

    /// The URL of the request; `${parameters.x}` stands for the argument `x` and is not allowed in the host
    pub(crate) url: UrlText,

    /// Headers of the request; `${VAR}` is an environment variable, `${parameters.x}` the argument `x`
    pub(crate) headers: Option<BTreeMap<String, SecretText>>,

    /// A group for the tool, in addition to the entries of `groups` that match its name
    pub(crate) group: Option<GroupText>,

    /// The queue for calls of the tool
    pub(crate) queue: Option<QueueText>,

    /// How long haft caches an output of the tool; `off` disables the cache
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// The JSON Schema of the arguments; without this key, every placeholder is an argument of type string
    pub(crate) parameters_schema: Option<AnyJson>,

    /// The request body as JSON; a string that contains only `${parameters.x}` becomes the argument `x` with its JSON type, and `${VAR}` is an environment variable
    pub(crate) body_template: Option<AnyJson>,

    /// Settings for a streamed response
    pub(crate) streaming: Option<RawStreaming>,

    /// Whether haft writes lists and objects into the query as `key[0][prop]=value`
    #[schemars(extend("default" = false))]
    pub(crate) has_complex_query_params: Option<bool>,

    /// The arguments that haft adds to the query
    #[schemars(extend("default" = []))]
    pub(crate) query_param_names: Option<Vec<String>>,

    /// Whether haft may send requests to a host with a private IP address
    #[schemars(extend("default" = false))]
    pub(crate) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawStreaming {
    /// `json-stream`: each line is a JSON value; `sse`: the response consists of server-sent events
    #[schemars(extend("default" = "json-stream"))]
    pub(crate) mode: Option<RawStreamMode>,

    /// A prefix that haft removes from every line
    #[schemars(extend("default" = ""))]
    pub(crate) line_prefix: Option<String>,

    /// The field of an event that contains the type of the event
    #[schemars(extend("default" = "type"))]
    pub(crate) discriminator_field: Option<String>,

    /// The value of `discriminatorField` in the last event
    #[schemars(extend("default" = "done"))]
    pub(crate) done_value: Option<String>,

    /// The field of the last event that contains the whole answer
    #[schemars(extend("default" = "answer"))]
    pub(crate) answer_field: Option<String>,

    /// The value of `discriminatorField` in events that contain a part of the answer
    #[schemars(extend("default" = "token"))]
    pub(crate) token_value: Option<String>,

    /// The field that contains a part of the answer, in an event with the type `tokenValue`
    #[schemars(extend("default" = "content"))]
    pub(crate) token_field: Option<String>,

    /// The time limit for the stream
    #[schemars(extend("default" = 120_000, "x-unit" = "milliseconds"))]
    pub(crate) timeout: Option<Millis>,

    /// The maximum size of the stream
    #[schemars(range(min = 1), extend("default" = 4_194_304, "x-unit" = "bytes"))]
    pub(crate) max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawOpenapiSpec {
    /// The OpenAPI document
    pub(crate) spec: SpecText,

    /// The base URL for requests, instead of the server in the OpenAPI document
    pub(crate) base_url: Option<UrlText>,

    /// Headers for every request; `${VAR}` is an environment variable
    pub(crate) headers: Option<BTreeMap<String, SecretText>>,

    /// The HTTP methods whose operations become tools
    #[schemars(extend("default" = ["get", "post", "put", "patch", "delete"]))]
    pub(crate) include_methods: Option<Vec<RawOperationMethod>>,

    /// The tags of the operations to use; by default haft uses all operations
    pub(crate) tag_filter: Option<Vec<String>>,

    /// The operations to use; the patterns match an operation id or `GET /path`. By default haft uses all operations
    pub(crate) include_operations: Option<Vec<GlobText>>,

    /// The operations to leave out; the patterns match an operation id or `GET /path`
    #[schemars(extend("default" = []))]
    pub(crate) exclude_operations: Option<Vec<GlobText>>,

    /// Whether deprecated operations become tools
    #[schemars(extend("default" = false))]
    pub(crate) include_deprecated: Option<bool>,

    /// The queue for calls of the operations
    pub(crate) queue: Option<QueueText>,

    /// How long haft caches an output of the operations; `off` disables the cache
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// Credentials; each key is the name of a security scheme in the OpenAPI document
    pub(crate) auth: Option<BTreeMap<String, RawRestCredentials>>,

    /// More hosts that haft may send requests to, if the OpenAPI document names them as a server
    #[schemars(extend("default" = []))]
    pub(crate) allow_hosts: Option<Vec<String>>,

    /// Whether haft may send requests to a host with a private IP address
    #[schemars(extend("default" = false))]
    pub(crate) allow_private_addresses: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawRestCredentials {
    /// The API key or the bearer token
    pub(crate) token: Option<SecretText>,

    /// The user name for basic authentication
    pub(crate) username: Option<SecretText>,

    /// The password for basic authentication
    pub(crate) password: Option<SecretText>,

    /// The client id for OAuth client credentials
    pub(crate) client_id: Option<SecretText>,

    /// The client secret for OAuth client credentials
    pub(crate) client_secret: Option<SecretText>,

    /// The OAuth scopes to request
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// The OAuth token endpoint, instead of the one in the OpenAPI document
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
