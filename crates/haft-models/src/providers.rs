//! Every provider that is known by name: one row each, and nothing but data.

use std::fmt;
use std::sync::Arc;

use haft_core::conversation::Format;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::anthropic::ANTHROPIC;
use crate::gemini::GEMINI;
use crate::http::{Auth, Endpoint, EndpointError};
use crate::ollama::OLLAMA;
use crate::openai_chat::{OpenaiChat, dialect};
use crate::openai_responses::OPENAI_RESPONSES;
use crate::wire::WireFormat;

/// One provider.
#[derive(Debug)]
pub struct ProviderRow {
    pub name: &'static str,
    pub format: Format,
    /// Which chat completions it speaks, where it does.
    dialect: &'static dialect::Dialect,
    /// Where it is; nothing when everybody has their own.
    pub base_url: Option<&'static str>,
    /// Variables that say where it is, the first that is set.
    base_variables: &'static [BaseVariable],
    /// Variables that hold the key, the first that is set.
    pub key_variables: &'static [&'static str],
    key: KeyPlace,
    /// Its name in the table of prices.
    pub price_list: Option<&'static str>,
}

/// A variable with an address, and the path that its readers add to it.
#[derive(Debug)]
struct BaseVariable {
    name: &'static str,
    below: &'static str,
}

/// Where a provider looks for the key.
#[derive(Debug, Clone, Copy)]
enum KeyPlace {
    Bearer,
    Header(&'static str),
    /// As a bearer's, when there is one; servers of one's own seldom want any.
    BearerIfAny,
}

const OPENAI: ProviderRow = ProviderRow {
    name: "openai",
    format: Format::OpenaiChat,
    dialect: &dialect::OPENAI,
    base_url: Some("https://api.openai.com/v1"),
    base_variables: &[BaseVariable { name: "OPENAI_BASE_URL", below: "" }],
    key_variables: &["OPENAI_API_KEY"],
    key: KeyPlace::Bearer,
    price_list: Some("openai"),
};

/// What all compatible servers share; each row says where it is and whose key it wants.
const COMPATIBLE: ProviderRow = ProviderRow {
    name: "compatible",
    dialect: &dialect::COMPATIBLE,
    base_url: None,
    base_variables: &[],
    key_variables: &[],
    key: KeyPlace::BearerIfAny,
    price_list: None,
    ..OPENAI
};

/// All of them.
pub const PROVIDERS: &[ProviderRow] = &[
    OPENAI,
    ProviderRow { name: "openai-responses", format: Format::OpenaiResponses, ..OPENAI },
    ProviderRow {
        name: "anthropic",
        format: Format::Anthropic,
        base_url: Some("https://api.anthropic.com/v1"),
        base_variables: &[BaseVariable { name: "ANTHROPIC_BASE_URL", below: "/v1" }],
        key_variables: &["ANTHROPIC_API_KEY"],
        key: KeyPlace::Header("x-api-key"),
        price_list: Some("anthropic"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "gemini",
        format: Format::Gemini,
        base_url: Some("https://generativelanguage.googleapis.com/v1beta"),
        base_variables: &[BaseVariable { name: "GOOGLE_GEMINI_BASE_URL", below: "/v1beta" }],
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        key: KeyPlace::Header("x-goog-api-key"),
        price_list: Some("gemini"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "ollama",
        format: Format::Ollama,
        base_url: Some("http://127.0.0.1:11434"),
        base_variables: &[BaseVariable { name: "OLLAMA_HOST", below: "" }],
        key_variables: &["OLLAMA_API_KEY"],
        ..COMPATIBLE
    },
    ProviderRow {
        name: "openrouter",
        dialect: &dialect::OPENROUTER,
        base_url: Some("https://openrouter.ai/api/v1"),
        base_variables: &[BaseVariable { name: "OPENROUTER_BASE_URL", below: "" }],
        key_variables: &["OPENROUTER_API_KEY"],
        key: KeyPlace::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "groq",
        dialect: &dialect::GROQ,
        base_url: Some("https://api.groq.com/openai/v1"),
        base_variables: &[BaseVariable { name: "GROQ_BASE_URL", below: "" }],
        key_variables: &["GROQ_API_KEY"],
        key: KeyPlace::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "mistral",
        dialect: &dialect::MISTRAL,
        base_url: Some("https://api.mistral.ai/v1"),
        base_variables: &[BaseVariable { name: "MISTRAL_BASE_URL", below: "" }],
        key_variables: &["MISTRAL_API_KEY"],
        key: KeyPlace::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "deepseek",
        dialect: &dialect::DEEPSEEK,
        base_url: Some("https://api.deepseek.com/v1"),
        base_variables: &[BaseVariable { name: "DEEPSEEK_BASE_URL", below: "" }],
        key_variables: &["DEEPSEEK_API_KEY"],
        key: KeyPlace::Bearer,
        price_list: Some("deepseek"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "xai",
        dialect: &dialect::XAI,
        base_url: Some("https://api.x.ai/v1"),
        base_variables: &[BaseVariable { name: "XAI_BASE_URL", below: "" }],
        key_variables: &["XAI_API_KEY"],
        key: KeyPlace::Bearer,
        price_list: Some("xai"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "together",
        dialect: &dialect::TOGETHER,
        base_url: Some("https://api.together.xyz/v1"),
        base_variables: &[BaseVariable { name: "TOGETHER_BASE_URL", below: "" }],
        key_variables: &["TOGETHER_API_KEY"],
        key: KeyPlace::Bearer,
        ..COMPATIBLE
    },
    ProviderRow {
        name: "azure",
        dialect: &dialect::AZURE,
        base_variables: &[BaseVariable { name: "AZURE_OPENAI_ENDPOINT", below: "/openai/v1" }],
        key_variables: &["AZURE_OPENAI_API_KEY"],
        key: KeyPlace::Header("api-key"),
        price_list: Some("openai"),
        ..COMPATIBLE
    },
    ProviderRow {
        name: "vllm",
        dialect: &dialect::VLLM,
        base_url: Some("http://127.0.0.1:8000/v1"),
        base_variables: &[BaseVariable { name: "VLLM_BASE_URL", below: "" }],
        key_variables: &["VLLM_API_KEY"],
        ..COMPATIBLE
    },
    ProviderRow {
        name: "llamacpp",
        dialect: &dialect::VLLM,
        base_url: Some("http://127.0.0.1:8080/v1"),
        base_variables: &[BaseVariable { name: "LLAMACPP_BASE_URL", below: "" }],
        key_variables: &["LLAMA_API_KEY"],
        ..COMPATIBLE
    },
    ProviderRow {
        name: "lmstudio",
        dialect: &dialect::VLLM,
        base_url: Some("http://127.0.0.1:1234/v1"),
        base_variables: &[BaseVariable { name: "LMSTUDIO_BASE_URL", below: "" }],
        ..COMPATIBLE
    },
    COMPATIBLE,
];

/// Where variables come from. Passed in, so that nothing here knows an environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the operator says about a provider beyond its row.
#[derive(Debug, Default)]
pub struct Wishes {
    pub format: Option<Format>,
    pub base_url: Option<String>,
    pub key: Option<SecretString>,
    pub headers: Vec<(String, SecretString)>,
    pub extra_body: Map<String, Value>,
}

impl ProviderRow {
    pub fn named(name: &str) -> Option<&'static ProviderRow> {
        PROVIDERS.iter().find(|row| row.name == name)
    }

    /// The address with its key, from what the operator wishes and what the environment holds.
    pub fn endpoint(&self, wishes: Wishes, variables: Lookup<'_>) -> Result<Endpoint, SetupError> {
        let set = |name: &str| variables(name).filter(|value| !value.trim().is_empty());
        let base = wishes.base_url.or_else(|| self.base_from(&set)).or(self.base_url.map(str::to_owned));
        let base = base.ok_or(SetupError::NoAddress { provider: self.name })?;
        let from_environment = || self.key_variables.iter().find_map(|name| set(name));
        let key = wishes.key.or_else(|| from_environment().map(|key| key.trim().to_owned().into()));
        let headers = wishes.headers;
        let shown = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let auth = match (key, self.key) {
            (Some(key), KeyPlace::Bearer | KeyPlace::BearerIfAny) => Auth::Bearer(key),
            (Some(key), KeyPlace::Header(name)) => Auth::Header(name, key),
            (None, KeyPlace::BearerIfAny) => Auth::Nothing,
            (None, _) if shown => Auth::Nothing,
            (None, KeyPlace::Bearer | KeyPlace::Header(_)) => {
                return Err(SetupError::NoKey { provider: self.name, variables: self.key_variables });
            }
        };
        let endpoint = Endpoint::new(self.wire(wishes.format.unwrap_or(self.format)), &base, auth)?;
        let endpoint = endpoint.extra_body(wishes.extra_body)?;
        Ok(headers.iter().try_fold(endpoint, |endpoint, (name, value)| endpoint.header(name, value))?)
    }

    fn base_from(&self, set: &dyn Fn(&str) -> Option<String>) -> Option<String> {
        self.base_variables.iter().find_map(|variable| {
            let written = set(variable.name)?;
            let base = with_scheme(written.trim().trim_end_matches('/'));
            let said = !variable.below.is_empty() && base.ends_with(variable.below);
            Some(if said { base } else { base + variable.below })
        })
    }

    fn wire(&self, format: Format) -> Arc<dyn WireFormat> {
        match format {
            Format::OpenaiChat => Arc::new(OpenaiChat(self.dialect)),
            Format::OpenaiResponses => Arc::new(OPENAI_RESPONSES),
            Format::Anthropic => Arc::new(ANTHROPIC),
            Format::Gemini => Arc::new(GEMINI),
            Format::Ollama => Arc::new(OLLAMA),
        }
    }
}

/// `OLLAMA_HOST` is often a host and a port alone, and for the server it may be the address that means all.
fn with_scheme(written: &str) -> String {
    let address = if written.contains("://") { written.to_owned() } else { format!("http://{written}") };
    let address = address.replace("://0.0.0.0", "://127.0.0.1");
    let bare = written.find([':', '/']).is_none();
    if bare { format!("{address}:11434") } else { address }
}

/// Why a provider cannot be asked; read by the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetupError {
    NoKey { provider: &'static str, variables: &'static [&'static str] },
    NoAddress { provider: &'static str },
    Endpoint(EndpointError),
}

impl From<EndpointError> for SetupError {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error)
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKey { provider, variables } => {
                write!(f, "there is no key for `{provider}`; set {}", variables.join(" or "))
            }
            Self::NoAddress { provider } => {
                write!(f, "nobody said where `{provider}` is; set `baseUrl` below `providers` in haft.json")
            }
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SetupError {}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn endpoint(name: &str, wishes: Wishes, variables: &[(&str, &str)]) -> Result<Endpoint, SetupError> {
        let lookup = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
        };
        ProviderRow::named(name).unwrap().endpoint(wishes, &lookup)
    }

    fn goes_to(name: &str, variables: &[(&str, &str)]) -> String {
        let endpoint = endpoint(name, Wishes::default(), variables).unwrap();
        endpoint.get("x").url().to_string()
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let names: HashSet<_> = PROVIDERS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), PROVIDERS.len());
    }

    #[test]
    fn addresses_come_from_the_usual_variables() {
        assert_eq!(goes_to("openai", &[("OPENAI_API_KEY", "k")]), "https://api.openai.com/v1/x");
        let own = [("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://h:1/v1/")];
        assert_eq!(goes_to("openai", &own), "http://h:1/v1/x");
        let own = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://h:1")];
        assert_eq!(goes_to("anthropic", &own), "http://h:1/v1/x");
        let own = [("ANTHROPIC_API_KEY", "k"), ("ANTHROPIC_BASE_URL", "http://h:1/v1")];
        assert_eq!(goes_to("anthropic", &own), "http://h:1/v1/x");
        assert_eq!(goes_to("ollama", &[]), "http://127.0.0.1:11434/x");
        assert_eq!(goes_to("ollama", &[("OLLAMA_HOST", "0.0.0.0:9")]), "http://127.0.0.1:9/x");
        assert_eq!(goes_to("ollama", &[("OLLAMA_HOST", "box")]), "http://box:11434/x");
        assert_eq!(goes_to("gemini", &[("GOOGLE_API_KEY", "k")]).find("v1beta/x"), Some(42));
    }

    #[test]
    fn a_key_that_is_missing_names_its_variables() {
        let missing = endpoint("gemini", Wishes::default(), &[("GEMINI_API_KEY", " ")]).unwrap_err();
        let said = "there is no key for `gemini`; set GEMINI_API_KEY or GOOGLE_API_KEY";
        assert_eq!(missing.to_string(), said);
        let nowhere = endpoint("compatible", Wishes::default(), &[]).unwrap_err();
        assert_eq!(nowhere, SetupError::NoAddress { provider: "compatible" });
        let headers = vec![("Authorization".to_owned(), "Basic x".into())];
        assert!(endpoint("openai", Wishes { headers, ..Wishes::default() }, &[]).is_ok());
    }
}
