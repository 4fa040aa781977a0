//! A table of all named providers, with one row of data for each provider.

use std::sync::Arc;

use haft_core::conversation::ModelApiFormat;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::anthropic::ANTHROPIC;
use crate::gemini::GEMINI;
use crate::http::{Endpoint, EndpointAuth, EndpointError};
use crate::ollama::OLLAMA;
use crate::openai_chat::{OpenaiChat, dialect};
use crate::openai_responses::OPENAI_RESPONSES;
use crate::unsupported_features::UnsupportedFeature;
use crate::wire::WireFormat;

/// One provider.
#[derive(Debug)]
pub struct ProviderRow {
    pub name: &'static str,
    pub format: ModelApiFormat,
    /// The Chat Completions dialect, for formats that have dialects.
    dialect: &'static dialect::Dialect,
    /// The default base URL; `None` if every user has a different base URL.
    pub base_url: Option<&'static str>,
    /// The environment variables for the base URL. The first one that is set is used.
    base_variables: &'static [BaseUrlVariable],
    /// The environment variables for the key. The first one that is set is used.
    pub key_variables: &'static [&'static str],
    key: KeyHeader,
    /// The provider's name in the price table.
    pub price_list: Option<&'static str>,
}

/// An environment variable for a base URL, and the path that other programs append to it.
#[derive(Debug)]
struct BaseUrlVariable {
    name: &'static str,
    written: UrlNotation,
    below: &'static str,
}

/// The notation of the URL in a variable.
#[derive(Debug, Clone, Copy)]
enum UrlNotation {
    /// The variable contains a full URL.
    Address,
    /// The format of `OLLAMA_HOST`: often only a host or port, or the wildcard address on which the server listens.
    Host,
}

/// The header in which a provider expects the key.
#[derive(Debug, Clone, Copy)]
enum KeyHeader {
    Bearer,
    Header(&'static str),
    /// A bearer token, if haft has a key. Self-hosted servers seldom require a key.
    BearerIfAny,
}

const OPENAI: ProviderRow = ProviderRow {
    name: "openai",
    format: ModelApiFormat::OpenaiChat,
    dialect: &dialect::OPENAI,
    base_url: Some("https://api.openai.com/v1"),
    base_variables: &[variable("OPENAI_BASE_URL", "")],
    key_variables: &["OPENAI_API_KEY"],
    key: KeyHeader::Bearer,
    price_list: Some("openai"),
};

const fn variable(name: &'static str, below: &'static str) -> BaseUrlVariable {
    BaseUrlVariable { name, written: UrlNotation::Address, below }
}

/// The common values for all OpenAI-compatible servers. Each row adds its base URL and key variables.
const COMPATIBLE: ProviderRow = ProviderRow {
    name: "compatible",
    dialect: &dialect::COMPATIBLE,
    base_url: None,
    base_variables: &[],
    key_variables: &[],
    key: KeyHeader::BearerIfAny,
    price_list: None,
    ..OPENAI
};

/// All providers.
pub const PROVIDERS: &[ProviderRow] = &[
    OPENAI,
    ProviderRow { name: "openai-responses", format: ModelApiFormat::OpenaiResponses, ..OPENAI },
    ProviderRow {
        name: "anthropic",
        format: ModelApiFormat::Anthropic,
        base_url: Some("https://api.anthropic.com/v1"),
        base_variables: &[variable("ANTHROPIC_BASE_URL", "/v1")],
        key_variables: &["ANTHROPIC_API_KEY"],
        key: KeyHeader::Header("x-api-key"),
        price_list: Some("anthropic"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "gemini",
        format: ModelApiFormat::Gemini,
        base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
        base_variables: &[variable("GOOGLE_GEMINI_BASE_URL", "/v1beta")],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        key: KeyHeader::Header("x-goog-api-key"),
        price_list: Some("gemini"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "ollama",
        format: ModelApiFormat::Ollama,
        base_url: Some("http://127.0.0.1:11434"),
        base_variables: &[BaseUrlVariable { name: "OLLAMA_HOST", written: UrlNotation::Host, below: "" }],
        key_variables: &["OLLAMA_API_KEY"],
        ..COMPATIBLE
    },
    ProviderRow {
        name: "openrouter",
        dialect: &dialect::OPENROUTER,
        base_url: Some("https://openrouter.ai/api/v1"),
        base_variables: &[variable("OPENROUTER_BASE_URL", "")],
        key_variables: &["OPENROUTER_API_KEY"],
        key: KeyHeader::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "groq",
        dialect: &dialect::GROQ,
        base_url: Some("https://api.groq.com/openai/v1"),
        base_variables: &[variable("GROQ_BASE_URL", "")],
        key_variables: &["GROQ_API_KEY"],
        key: KeyHeader::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "mistral",
        dialect: &dialect::MISTRAL,
        base_url: Some("https://api.mistral.ai/v1"),
        base_variables: &[variable("MISTRAL_BASE_URL", "")],
        key_variables: &["MISTRAL_API_KEY"],
        key: KeyHeader::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "deepseek",
        dialect: &dialect::DEEPSEEK,
        base_url: Some("https://api.deepseek.com/v1"),
        base_variables: &[variable("DEEPSEEK_BASE_URL", "")],
        key_variables: &["DEEPSEEK_API_KEY"],
        key: KeyHeader::Bearer,
        price_list: Some("deepseek"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "xai",
        dialect: &dialect::XAI,
        base_url: Some("https://api.x.ai/v1"),
        base_variables: &[variable("XAI_BASE_URL", "")],
        key_variables: &["XAI_API_KEY"],
        key: KeyHeader::Bearer,
        price_list: Some("xai"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "together",
        dialect: &dialect::TOGETHER,
        base_url: Some("https://api.together.xyz/v1"),
        base_variables: &[variable("TOGETHER_BASE_URL", "")],
        key_variables: &["TOGETHER_API_KEY"],
        key: KeyHeader::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "azure",
        dialect: &dialect::AZURE,
        base_variables: &[variable("AZURE_OPENAI_ENDPOINT", "/openai/v1")],
        key_variables: &["AZURE_OPENAI_API_KEY"],
        key: KeyHeader::Header("api-key"),
        price_list: Some("openai"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "vllm",
        dialect: &dialect::VLLM,
        base_url: Some("http://127.0.0.1:8000/v1"),
        base_variables: &[variable("VLLM_BASE_URL", "")],
        key_variables: &["VLLM_API_KEY"],
        ..COMPATIBLE
    },
    ProviderRow {
        name: "llamacpp",
        dialect: &dialect::VLLM,
        base_url: Some("http://127.0.0.1:8080/v1"),
        base_variables: &[variable("LLAMACPP_BASE_URL", "")],
        key_variables: &["LLAMA_API_KEY"],
        ..COMPATIBLE
    },
    ProviderRow {
        name: "lmstudio",
        dialect: &dialect::VLLM,
        base_url: Some("http://127.0.0.1:1234/v1"),
        base_variables: &[variable("LMSTUDIO_BASE_URL", "")],
        ..COMPATIBLE
    },
    COMPATIBLE,
];

/// A lookup of environment variables. It is a parameter so that this module does not access the environment.
pub type EnvironmentLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The operator's settings for a provider, which have priority over its row.
#[derive(Debug, Default)]
pub struct ProviderOverrides {
    pub format: Option<ModelApiFormat>,
    pub base_url: Option<String>,
    pub key: Option<SecretString>,
    pub headers: Vec<(String, SecretString)>,
    pub extra_body: Map<String, Value>,
}

impl ProviderRow {
    pub fn named(name: &str) -> Option<&'static ProviderRow> {
        PROVIDERS.iter().find(|row| row.name == name)
    }

    /// Returns the endpoint with its key, from the operator's settings and the environment.
    pub fn endpoint(
        &self,
        overrides: ProviderOverrides,
        variables: EnvironmentLookup<'_>,
    ) -> Result<Endpoint, SetupError> {
        let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        let base = self.address(overrides.base_url, variables);
        let variable = self.base_variables.first().map(|variable| variable.name);
        let base = base.ok_or(SetupError::NoAddress { provider: self.name, variable })?;
        let from_environment = || self.key_variables.iter().find_map(|name| set(name));
        let key = overrides.key.or_else(|| from_environment().map(|key| key.trim().to_owned().into()));
        let headers = overrides.headers;
        let is_key = |name: &str| match self.key {
            KeyHeader::Header(usual) if name.eq_ignore_ascii_case(usual) => true,
            KeyHeader::Header(_) | KeyHeader::Bearer | KeyHeader::BearerIfAny => {
                name.eq_ignore_ascii_case("authorization")
            }
        };
        // Require no key if the configuration sets a header with credentials.
        let shown = headers.iter().any(|(name, _)| is_key(name));
        let auth = match (key, self.key) {
            (Some(key), KeyHeader::Bearer | KeyHeader::BearerIfAny) => EndpointAuth::Bearer(key),
            (Some(key), KeyHeader::Header(name)) => EndpointAuth::Header(name, key),
            (None, KeyHeader::BearerIfAny) => EndpointAuth::Nothing,
            (None, _) if shown => EndpointAuth::Nothing,
            (None, KeyHeader::Bearer | KeyHeader::Header(_)) => {
                return Err(SetupError::NoKey { provider: self.name, variables: self.key_variables });
            }
        };
        let endpoint = Endpoint::new(self.wire(overrides.format.unwrap_or(self.format)), &base, auth)?;
        let endpoint = endpoint.extra_body(overrides.extra_body)?;
        Ok(headers.iter().try_fold(endpoint, |endpoint, (name, value)| endpoint.header(name, value))?)
    }

    fn base_from(&self, set: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        self.base_variables.iter().find_map(|variable| {
            let written = set(variable.name)?;
            let written = written.trim().trim_end_matches('/');
            let base = match variable.written {
                UrlNotation::Address => written.to_owned(),
                UrlNotation::Host => host_address(written),
            };
            // Do not append the path twice, because some users already include it in the variable.
            let has_suffix = !variable.below.is_empty() && base.ends_with(variable.below);
            Some(if has_suffix { base } else { base + variable.below })
        })
    }

    /// Returns the base URL: the configured one, or one from the environment, or the provider's own.
    pub fn address(&self, configured: Option<String>, variables: EnvironmentLookup<'_>) -> Option<String> {
        let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        configured.or_else(|| self.base_from(&set)).or(self.base_url.map(str::to_owned))
    }

    /// Returns the features that requests in this format cannot contain, with their substitutes.
    pub fn unsupported(&self, format: ModelApiFormat) -> &'static [UnsupportedFeature] {
        self.wire(format).unsupported()
    }

    fn wire(&self, format: ModelApiFormat) -> Arc<dyn WireFormat> {
        match format {
            ModelApiFormat::OpenaiChat => Arc::new(OpenaiChat(self.dialect)),
            ModelApiFormat::OpenaiResponses => Arc::new(OPENAI_RESPONSES),
            ModelApiFormat::Anthropic => Arc::new(ANTHROPIC),
            ModelApiFormat::Gemini => Arc::new(GEMINI),
            ModelApiFormat::Ollama => Arc::new(OLLAMA),
        }
    }
}

/// Interprets `OLLAMA_HOST` as Ollama does: without a scheme the default port is 11434, and a wildcard address means
/// this machine.
fn host_address(written: &str) -> String {
    let (scheme, rest) = written.split_once("://").unwrap_or(("http", written));
    let usual_port = if written.contains("://") { "" } else { ":11434" };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let port_at = authority.rfind(':').filter(|at| !authority[*at..].contains(']'));
    let (host, port) = authority.split_at(port_at.unwrap_or(authority.len()));
    let host = match host {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        host => host,
    };
    let port = if port.is_empty() { usual_port } else { port };
    format!("{scheme}://{host}{port}{path}")
}

/// A configuration error of a provider, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    #[error("haft has no API key for `{provider}`; set {}", .variables.join(" or "))]
    NoKey { provider: &'static str, variables: &'static [&'static str] },
    #[error("haft has no URL for `{provider}`; set {}`baseUrl` under `providers` in haft.json", .variable.map(|name| format!("{name}, or ")).unwrap_or_default())]
    NoAddress { provider: &'static str, variable: Option<&'static str> },
    #[error("{0}")]
    Endpoint(EndpointError),
}

impl From<EndpointError> for SetupError {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn endpoint(
        name: &str,
        overrides: ProviderOverrides,
        variables: &[(&str, &str)],
    ) -> Result<Endpoint, SetupError> {
        let lookup = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        ProviderRow::named(name).unwrap().endpoint(overrides, &lookup)
    }

    fn goes_to(name: &str, variables: &[(&str, &str)]) -> String {
        let endpoint = endpoint(name, ProviderOverrides::default(), variables).unwrap();
        endpoint.get("x").url().to_string()
    }

    #[test]
    fn provider_names_are_unique() {
        let names: HashSet<_> = PROVIDERS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), PROVIDERS.len());
    }

    #[test]
    fn provider_table_matches_the_configurable_provider_names() {
        let names: Vec<_> = PROVIDERS.iter().map(|row| row.name).collect();
        assert_eq!(names, haft_core::settings::models::PROVIDER_NAMES);
    }

    #[test]
    fn base_urls_are_read_from_the_usual_environment_variables() {
        assert_eq!(goes_to("openai", &[("OPENAI_API_KEY", "k")]), "https://api.openai.com/v1/x");
        let own = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://h:1/v1/")];
        assert_eq!(goes_to("openai", &own), "http://h:1/v1/x");
        let own = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://h:1")];
        assert_eq!(goes_to("anthropic", &own), "http://h:1/v1/x");
        let own = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://h:1/v1")];
        assert_eq!(goes_to("anthropic", &own), "http://h:1/v1/x");
        assert_eq!(goes_to("ollama", &[]), "http://127.0.0.1:11434/x");
        assert_eq!(goes_to("ollama", &[("OLLAMA_HOST", "0.0.0.0:9")]), "http://127.0.0.1:9/x");
        for (host, expected) in [
            ("box", "http://box:11434/x"),
            (":9", "http://127.0.0.1:9/x"),
            ("0.0.0.0", "http://127.0.0.1:11434/x"),
            ("[::]", "http://[::1]:11434/x"),
            ("[::1]:9", "http://[::1]:9/x"),
            ("https://box", "https://box/x"),
            ("box/behind/", "http://box:11434/behind/x"),
        ] {
            assert_eq!(goes_to("ollama", &[("OLLAMA_HOST", host)]), expected, "{host}");
        }
        assert_eq!(goes_to("gemini", &[("GOOGLE_API_KEY", "k")]).find("v1beta/x"), Some(42));
    }

    #[test]
    fn azure_url_is_built_from_the_endpoint_or_a_deployment_url() {
        let own = [("AZURE_OPENAI_API_KEY", "k"), ("AZURE_OPENAI_ENDPOINT", "https://r.openai.azure.com/")];
        assert_eq!(goes_to("azure", &own), "https://r.openai.azure.com/openai/v1/x");
        let base = "https://r.openai.azure.com/openai/deployments/d?api-version=2024-10-21";
        let overrides = ProviderOverrides { base_url: Some(base.into()), ..ProviderOverrides::default() };
        let endpoint = endpoint("azure", overrides, &[("AZURE_OPENAI_API_KEY", "k")]).unwrap();
        let expected =
            "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21";
        assert_eq!(endpoint.get("chat/completions").url().as_str(), expected);
        assert_eq!(endpoint.get("x").headers()["api-key"], "k");
    }

    #[test]
    fn base_url_without_a_scheme_is_rejected() {
        for (name, key, variable) in [
            ("azure", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
            ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ] {
            let own = [(key, "k"), (variable, "r.example.com")];
            let refused = endpoint(name, ProviderOverrides::default(), &own).unwrap_err().to_string();
            assert!(refused.starts_with("`r.example.com"), "{refused}");
            assert!(
                refused.ends_with("is not a URL; expected a URL such as https://example.com/v1"),
                "{refused}"
            );
        }
    }

    #[test]
    fn missing_key_error_names_the_environment_variables() {
        let missing =
            endpoint("gemini", ProviderOverrides::default(), &[("GEMINI_API_KEY", " ")]).unwrap_err();
        let said = "haft has no API key for `gemini`; set GEMINI_API_KEY or GOOGLE_API_KEY";
        assert_eq!(missing.to_string(), said);
        let nowhere = endpoint("compatible", ProviderOverrides::default(), &[]).unwrap_err();
        assert_eq!(
            nowhere.to_string(),
            "haft has no URL for `compatible`; set `baseUrl` under `providers` in haft.json"
        );
        let nowhere =
            endpoint("azure", ProviderOverrides::default(), &[("AZURE_OPENAI_API_KEY", "k")]).unwrap_err();
        assert!(nowhere.to_string().contains("set AZURE_OPENAI_ENDPOINT, or `baseUrl`"), "{nowhere}");
        let headers = vec![("Authorization".to_owned(), "Basic x".into())];
        assert!(
            endpoint("openai", ProviderOverrides { headers, ..ProviderOverrides::default() }, &[]).is_ok()
        );
        let headers = vec![("X-Api-Key".to_owned(), "k".into())];
        assert!(
            endpoint("anthropic", ProviderOverrides { headers, ..ProviderOverrides::default() }, &[]).is_ok()
        );
    }
}
