//! The OAuth keys of a remote MCP server, as the configuration file contains them, before defaults are applied.

use haft_core::settings::mcp::{OAuthAccount, OAuthGrant};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::value_format::{TemplateText, words};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawMcpOauth {
    /// The client id for the authorization server; without this key, haft uses a client metadata document or dynamic client registration
    pub(crate) client_id: Option<TemplateText>,

    /// The issuer URL of the only authorization server that may issue tokens and that gets `clientSecret`; by default the issuer that the MCP server announces
    pub(crate) issuer: Option<TemplateText>,

    /// The secret for `clientId`; write it as a variable, so that the file does not contain it
    pub(crate) client_secret: Option<TemplateText>,

    /// The private key for `clientId` in place of a secret: PKCS#8 in PEM, on the curve P-256; write it as a variable
    pub(crate) private_key: Option<TemplateText>,

    /// The absolute path of a file with a token: for `jwtBearer` the token of the workload, for `enterprise` the ID token of the user; haft reads it for every new token
    pub(crate) assertion_file: Option<TemplateText>,

    /// For `enterprise`: the identity provider that exchanges the ID token
    pub(crate) identity_provider: Option<RawIdentityProvider>,

    /// The URL of the client metadata document, for authorization servers that accept such a document instead of a registration
    pub(crate) client_metadata_url: Option<TemplateText>,

    /// The scopes to request if the server does not name any
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// `person`: a person logs in with `haft mcp login`; `clientCredentials`: haft logs in with `clientId` and a secret or key; `jwtBearer`: with a token of its platform; `enterprise`: through the identity provider of an organization
    #[schemars(extend("default" = "person"))]
    pub(crate) grant: Option<RawMcpGrant>,

    /// The account that haft uses at the server if a person logs in: with `principal`, each principal logs in with its own account; with `operator`, all principals use the account with which the operator logged in
    #[schemars(extend("default" = "principal"))]
    pub(crate) account: Option<RawMcpAccount>,

    /// The local port that the browser is redirected to after a login; 0 means any free port
    #[schemars(extend("default" = 0))]
    pub(crate) redirect_port: Option<u16>,
}

/// The keys of an identity provider, as written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawIdentityProvider {
    /// The issuer URL of the identity provider
    pub(crate) issuer: Option<TemplateText>,

    /// The client id at the identity provider
    pub(crate) client_id: Option<TemplateText>,

    /// The secret for `clientId`; write it as a variable
    pub(crate) client_secret: Option<TemplateText>,
}

words! {
    pub(crate) RawMcpGrant for OAuthGrant {
        "person" Person, "clientCredentials" ClientCredentials, "jwtBearer" JwtBearer, "enterprise" Enterprise
    }
}

words! {
    pub(crate) RawMcpAccount for OAuthAccount { "principal" Principal, "operator" Operator }
}
