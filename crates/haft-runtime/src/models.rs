//! Builds model providers from the configuration, with their fallbacks.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_provider::ModelProvider;
use haft_core::model_request::ModelTool;
use haft_core::tokens::Tokens;
use haft_core::tool::ToolDefinition;
use haft_engine::exposure::definition_bytes;
use haft_models::claude_code;
use haft_models::fallback::FallbackProvider;
use haft_models::http::{CertificateAuthorities, ClientPool, HttpProvider, HttpSettings, ListedModel};
use haft_models::model_data::sizes_of;
use haft_models::prices::Prices;
use haft_models::provider_circuit::ProviderCircuits;
use haft_models::providers::{PROVIDERS, ProviderOverrides, ProviderRow, SetupError};
use haft_models::schema::SchemaDialect;
use haft_models::tool_calling::{ToolCalling, ToolCallingProvider};
pub use haft_models::unsupported_features::RequestFeature;
use haft_sandbox::{Home, SandboxPolicy};
use secrecy::SecretString;

use crate::capability_cache::CapabilityCacheFile;
use haft_config::ResolvedConfig;
use haft_config::agents::loader::read_bounded;
use haft_config::expand::{VariableSource, expand};
use haft_config::printable;
use haft_config::resolved::{ModelName, ProviderSettings, SecretTemplate};

/// The timeout of a probe that checks whether a model server answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum size of a file with CA certificates, in bytes. The certificate bundle of an operating system has about a
/// quarter of this size.
const AUTHORITIES_BYTES_MAX: u64 = 1024 * 1024;

/// Builds the default provider, and returns it with the names of its fast and its complex model. A request may name any
/// other model of the same provider.
pub fn build_provider(
    config: &ResolvedConfig,
    variables: VariableSource<'_>,
) -> Result<(Box<dyn ModelProvider>, String, String), ModelsError> {
    let models = &config.models;
    let default = models.default.as_ref().ok_or(ModelsError::NoModel)?;
    let names: Vec<ModelName> = std::iter::once(default).chain(&models.fallback).cloned().collect();
    let (fast, complex) = match kind(config, &default.provider) {
        claude_code::NAME => (claude_code::MODEL_FAST, claude_code::MODEL_COMPLEX),
        _ => (default.model.as_str(), default.model.as_str()),
    };
    let or = |named: Option<&ModelName>, usual: &str| named.map_or(usual, |name| &name.model).to_owned();
    let (fast, complex) = (or(models.fast.as_ref(), fast), or(models.complex.as_ref(), complex));
    Ok((chain(config, &names, variables)?, fast, complex))
}

/// Builds the provider of the first model, with the other models as fallbacks. A request names the first model; a
/// fallback receives its own model name.
pub fn chain(
    config: &ResolvedConfig,
    names: &[ModelName],
    variables: VariableSource<'_>,
) -> Result<Box<dyn ModelProvider>, ModelsError> {
    ModelProviders::default().chain(None, config, names, variables)
}

/// The providers of one configuration. All users of a provider share its connections and its cache of model
/// capabilities.
#[derive(Default)]
pub struct ModelProviders {
    built: Mutex<HashMap<String, Arc<dyn ModelProvider>>>,
    clients: ClientPool,
    circuits: ProviderCircuits,
}

impl ModelProviders {
    /// Creates the providers of another configuration or run. They share only the connections in `clients` and the
    /// failure state in `circuits` with other providers, because each run may have its own API keys and addresses.
    pub fn sharing(clients: ClientPool, circuits: ProviderCircuits) -> Self {
        Self { built: Mutex::default(), clients, circuits }
    }

    /// Builds a chain like [`chain`], with a sandbox policy for providers that run a local command. Without a policy,
    /// the configuration supplies one.
    pub fn chain(
        &self,
        policy: Option<&SandboxPolicy>,
        config: &ResolvedConfig,
        names: &[ModelName],
        variables: VariableSource<'_>,
    ) -> Result<Box<dyn ModelProvider>, ModelsError> {
        let (first, then) = names.split_first().ok_or(ModelsError::NoModel)?;
        let of = |name: &ModelName| self.of(policy, config, &name.provider, variables);
        let provider = of(first)?;
        if then.is_empty() {
            return Ok(provider);
        }
        let then: Result<Vec<_>, ModelsError> =
            then.iter().map(|name| Ok((of(name)?, name.model.clone()))).collect();
        let circuit = |name: &ModelName| {
            let address = address(config, &name.provider, variables).unwrap_or_default();
            self.circuits.of(&name.provider, &address)
        };
        let circuits = names.iter().map(circuit).collect();
        Ok(Box::new(FallbackProvider::new(provider, then?).with_circuits(circuits)))
    }

    /// Returns the shared provider with this name. A provider that runs a command is created anew each time: it has no
    /// connections to share, and only one caller may use its sessions.
    fn of(
        &self,
        policy: Option<&SandboxPolicy>,
        config: &ResolvedConfig,
        name: &str,
        variables: VariableSource<'_>,
    ) -> Result<Box<dyn ModelProvider>, ModelsError> {
        if kind(config, name) == claude_code::NAME {
            return command(policy, config, name);
        }
        let mut providers = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(provider) = providers.get(name) {
            return Ok(Box::new(Arc::clone(provider)));
        }
        let home = policy.map(|policy| policy.home().clone()).or_else(crate::home::find);
        let provider: Arc<dyn ModelProvider> =
            Arc::new(self.fitted(home.as_ref(), config, name, variables)?);
        providers.insert(name.to_owned(), Arc::clone(&provider));
        Ok(Box::new(provider))
    }

    /// Builds a provider that adapts tool calling to each of its models.
    fn fitted(
        &self,
        home: Option<&Home>,
        config: &ResolvedConfig,
        name: &str,
        variables: VariableSource<'_>,
    ) -> Result<ToolCallingProvider, ModelsError> {
        let provider = provider_of(config, name, variables, &self.clients)?;
        let fitted = ToolCallingProvider::new(Box::new(provider), tool_calling_overrides(config, name));
        let Some(home) = home else { return Ok(fitted) };
        let learned = CapabilityCacheFile::of(home, name);
        let known = learned.prompted();
        Ok(fitted.with_known_models(known, Box::new(move |model| learned.remember(model))))
    }
}

impl fmt::Debug for ModelProviders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelProviders").finish_non_exhaustive()
    }
}

/// Builds a provider that runs a command. The command has its own tools; haft's tools are added to its prompt only if
/// the operator configures this.
fn command(
    policy: Option<&SandboxPolicy>,
    config: &ResolvedConfig,
    name: &str,
) -> Result<Box<dyn ModelProvider>, ModelsError> {
    let usual = || ProviderSettings::of_kind(claude_code::NAME);
    let settings = config.providers.get(name).cloned().unwrap_or_else(usual);
    let command = Box::new(crate::claude_code::provider(config, name, &settings, policy)?);
    let tool_calling_overrides = tool_calling_overrides(config, name);
    Ok(if tool_calling_overrides.is_empty() {
        command
    } else {
        Box::new(ToolCallingProvider::new(command, tool_calling_overrides))
    })
}

/// Returns the operator's tool-calling settings for the models of a provider.
fn tool_calling_overrides(config: &ResolvedConfig, name: &str) -> HashMap<String, ToolCalling> {
    let settings = config.models.settings.iter().filter(|(model, _)| model.provider == name);
    settings
        .filter_map(|(model, tool_calling_overrides)| {
            Some((model.model.clone(), tool_calling_overrides.tool_calling?))
        })
        .collect()
}

/// Returns the kind of a provider, by its name.
pub(crate) fn kind<'a>(config: &'a ResolvedConfig, name: &'a str) -> &'a str {
    config.providers.get(name).map_or(name, |provider| provider.kind)
}

/// Returns true if a provider has its own tools, which it may run during a request.
pub fn has_tools_of_its_own(config: &ResolvedConfig, name: &str) -> bool {
    kind(config, name) == claude_code::NAME
}

/// Returns the base URL of a provider; `None` for a command and for a provider without an address.
fn address(config: &ResolvedConfig, name: &str, variables: VariableSource<'_>) -> Option<String> {
    let (row, settings) = found(config, name).ok()?;
    let configured = settings.base_url.as_ref().and_then(|template| expand(&template.0, variables).ok());
    row.address(configured, variables)
}

/// Returns true if requests to this provider can contain a feature. A model of the provider may still reject it.
pub fn supports(config: &ResolvedConfig, name: &str, feature: RequestFeature) -> bool {
    let Ok((row, settings)) = found(config, name) else { return false };
    let format = settings.format.unwrap_or(row.format);
    row.unsupported(format).iter().all(|row| row.feature != feature)
}

/// Returns every known API key and header value, so that recordings can redact them.
pub fn secrets(config: &ResolvedConfig, variables: VariableSource<'_>) -> Vec<SecretString> {
    let names = PROVIDERS.iter().flat_map(|row| row.key_variables).filter_map(|name| variables(name));
    let configured = config
        .providers
        .values()
        .flat_map(|provider| provider.api_key.iter().chain(provider.headers.values()));
    let written = configured.filter_map(|template| expand(&template.0, variables).ok());
    names.chain(written).map(Into::into).collect()
}

/// Builds one provider: the configured or the built-in provider with this name.
pub fn provider(
    config: &ResolvedConfig,
    name: &str,
    variables: VariableSource<'_>,
) -> Result<HttpProvider, ModelsError> {
    provider_of(config, name, variables, &ClientPool::default())
}

fn provider_of(
    config: &ResolvedConfig,
    name: &str,
    variables: VariableSource<'_>,
    clients: &ClientPool,
) -> Result<HttpProvider, ModelsError> {
    if kind(config, name) == claude_code::NAME {
        let (fast, complex) = (claude_code::MODEL_FAST, claude_code::MODEL_COMPLEX);
        let problem = format!(
            "Claude Code cannot list its models; use `{fast}` or `{complex}` for the newest model of each kind"
        );
        return Err(ModelsError::Command { provider: name.to_owned(), problem });
    }
    let (row, wanted) = found(config, name)?;
    let mut overrides = overrides(name, &wanted, variables)?;
    if overrides.format.unwrap_or(row.format) == ModelApiFormat::Anthropic {
        overrides.base_url = overrides.base_url.map(with_version);
    }
    let endpoint = row
        .endpoint(overrides, variables)
        .map_err(|error| ModelsError::Setup { provider: name.to_owned(), error })?;
    let own = config.models.settings.iter().filter(|(model, _)| model.provider == name);
    let prices =
        own.fold(Prices::of_list(row.price_list), |prices, (model, settings)| match settings.price {
            Some(price) => prices.with(model.model.clone(), price),
            None => prices,
        });
    let (delivery, timeouts, retry) = (wanted.delivery, wanted.timeouts, wanted.retry);
    let authorities = authorities(name, wanted.ca_file.as_ref(), variables)?;
    let settings =
        HttpSettings { name: name.into(), endpoint, authorities, delivery, timeouts, retry, prices };
    HttpProvider::sharing(settings, clients).map_err(ModelsError::Client)
}

/// Adds `/v1` to a base URL of Anthropic's format that has no version. Anthropic's own tools expect the URL without it,
/// as in `ANTHROPIC_BASE_URL`.
fn with_version(url: String) -> String {
    let trimmed = url.trim_end_matches('/');
    let last = trimmed.rsplit('/').next().unwrap_or_default();
    let is_version =
        last.strip_prefix('v').is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    if is_version { url } else { format!("{trimmed}/v1") }
}

/// Returns the CA certificates for a provider, from the file that the configuration names.
fn authorities(
    name: &str,
    file: Option<&SecretTemplate>,
    variables: VariableSource<'_>,
) -> Result<CertificateAuthorities, ModelsError> {
    let key = || format!("providers.{name}.caFile");
    let wrong = |message: String| ModelsError::Variable { key: key(), message };
    let Some(file) = file else { return Ok(CertificateAuthorities::default()) };
    let path = expand(&file.0, variables).map_err(|error| wrong(error.to_string()))?;
    let text = read_bounded(Path::new(&path), AUTHORITIES_BYTES_MAX)
        .map_err(|problem| wrong(format!("{path}: {problem}")))?;
    CertificateAuthorities::from_pem(text.as_bytes()).map_err(|problem| wrong(format!("{path}: {problem}")))
}

fn found(
    config: &ResolvedConfig,
    name: &str,
) -> Result<(&'static ProviderRow, ProviderSettings), ModelsError> {
    let configured = config.providers.get(name).cloned();
    let row = configured.as_ref().map_or(name, |provider| provider.kind);
    let unknown = || ModelsError::Unknown { provider: name.to_owned(), known: known(config) };
    let row = ProviderRow::named(row).ok_or_else(unknown)?;
    Ok((row, configured.unwrap_or_else(|| ProviderSettings::of_kind(row.name))))
}

/// Lists the models of a provider. A command has no model list; its aliases select the newest model of each kind.
pub async fn listed(
    config: &ResolvedConfig,
    name: &str,
    variables: VariableSource<'_>,
) -> Result<Vec<ListedModel>, ModelsError> {
    if kind(config, name) == claude_code::NAME {
        let alias =
            |id: &str| ListedModel { id: id.to_owned(), context_tokens: None, output_tokens_max: None };
        return Ok([claude_code::MODEL_FAST, claude_code::MODEL_COMPLEX].map(alias).into());
    }
    provider(config, name, variables)?.models().await.map_err(ModelsError::Client)
}

/// Returns the JSON Schema dialect that a provider accepts in tool definitions.
pub(crate) fn tool_grammar(config: &ResolvedConfig, name: &str) -> SchemaDialect {
    match format_of(config, name) {
        Some(ModelApiFormat::Anthropic) => SchemaDialect::Anthropic,
        Some(ModelApiFormat::Gemini) => SchemaDialect::Gemini,
        Some(ModelApiFormat::Ollama) => SchemaDialect::Ollama,
        Some(ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses) | None => SchemaDialect::Json,
    }
}

/// The maximum number of tools that OpenAI accepts in one request. Servers with the same format may accept more, but
/// haft hides tools beyond this number anyway.
const OPENAI_TOOLS_MAX: usize = 128;

/// Returns the maximum number of tools that servers with this wire format accept in one request.
pub(crate) fn tools_max(format: ModelApiFormat) -> Option<usize> {
    match format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses => Some(OPENAI_TOOLS_MAX),
        ModelApiFormat::Anthropic | ModelApiFormat::Gemini | ModelApiFormat::Ollama => None,
    }
}

/// The maximum sizes of requests to Anthropic and Gemini, in bytes.
const ANTHROPIC_REQUEST_BYTES_MAX: u64 = 32 << 20;
const GEMINI_REQUEST_BYTES_MAX: u64 = 20 << 20;

/// Returns the maximum request size that servers with this wire format accept, in bytes; `None` if no limit is
/// documented.
pub(crate) fn request_bytes_max(format: ModelApiFormat) -> Option<u64> {
    match format {
        ModelApiFormat::Anthropic => Some(ANTHROPIC_REQUEST_BYTES_MAX),
        ModelApiFormat::Gemini => Some(GEMINI_REQUEST_BYTES_MAX),
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses | ModelApiFormat::Ollama => None,
    }
}

/// The maximum number of tools that Anthropic searches or loads by name.
const LOADABLE_TOOLS_MAX: usize = 10_000;

/// Tools that the model loads by name may take at most the maximum request size divided by this number. Every request
/// to Anthropic contains all these tools, and the conversation needs the rest.
const LOADABLE_SHARE: u64 = 2;

/// Returns true if these hidden tools fit into a request, so that the model can load them by name.
pub(crate) fn carries_hidden(format: ModelApiFormat, tools: &[ModelTool]) -> bool {
    let bytes: u64 = tools.iter().map(definition_bytes).sum();
    tools.len() <= LOADABLE_TOOLS_MAX
        && request_bytes_max(format).is_none_or(|most| bytes <= most / LOADABLE_SHARE)
}

/// The cost of showing all tools to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelToolFit {
    /// The estimated tokens of all definitions.
    pub tokens: u64,
    /// The reason why the default model cannot get all tools, if there is one.
    pub problem: Option<String>,
}

/// Compares tools with the limits of the default model. Without a default model there is no limit.
pub fn tool_fit(config: &ResolvedConfig, tools: &[ToolDefinition]) -> ModelToolFit {
    let bytes = |tool: &ToolDefinition| {
        tool.name.as_str().len() + tool.description.len() + tool.input_schema.to_string().len()
    };
    let bytes = tools.iter().map(bytes).sum::<usize>() as u64;
    let tokens = Tokens::by_length(bytes).count();
    let problem = config.models.default.as_ref().and_then(|model| {
        let format = format_of(config, &model.provider);
        let most = format.and_then(tools_max);
        let most_bytes = format.and_then(request_bytes_max).unwrap_or(u64::MAX);
        let written = config.models.settings.get(model).and_then(|settings| settings.context_tokens);
        let window = written.or(sizes_of(&model.model).context_tokens).map(u64::from);
        match (most, window) {
            (Some(most), _) if tools.len() > most => {
                Some(format!("the provider `{}` accepts at most {most} tools in a request", model.provider))
            }
            (_, Some(window)) if tokens > window => {
                Some(format!("the context window of the model `{model}` has only {window} tokens"))
            }
            _ if bytes > most_bytes => Some(format!(
                "the provider `{}` accepts at most {most_bytes} bytes in a request",
                model.provider
            )),
            _ => None,
        }
    });
    ModelToolFit { tokens, problem }
}

/// Returns the wire format of a provider; `None` for a command.
pub(crate) fn format_of(config: &ResolvedConfig, name: &str) -> Option<ModelApiFormat> {
    let format = config.providers.get(name).and_then(|provider| provider.format);
    format.or_else(|| ProviderRow::named(kind(config, name)).map(|row| row.format))
}

/// Returns the wire format of a provider, and the reason why it cannot be used, if there is one. Sends no request.
pub fn state(
    config: &ResolvedConfig,
    name: &str,
    variables: VariableSource<'_>,
) -> (&'static str, Result<(), ModelsError>) {
    let kind = kind(config, name);
    if kind != claude_code::NAME {
        let configured = config.providers.get(name).and_then(|provider| provider.format);
        let usual = ProviderRow::named(kind).map(|row| row.format);
        let format = configured.or(usual).map_or("", ModelApiFormat::name);
        return (format, provider(config, name, variables).map(drop));
    }
    let configured = config.providers.get(name).map(|provider| provider.command.command.as_str());
    let program = configured.unwrap_or(claude_code::COMMAND);
    let found = if crate::claude_code::is_installed(program) {
        Ok(())
    } else {
        let problem =
            format!("the program `{program}` is not installed; {}", crate::claude_code::HOW_TO_INSTALL);
        Err(ModelsError::Command { provider: name.to_owned(), problem })
    };
    ("command", found)
}

/// Selects the providers whose servers haft probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeScope {
    /// Only servers on this machine are probed.
    Local,
    /// Every provider that has an API key is probed.
    All,
}

/// The result of a probe that checks whether a model server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerProbeOutcome {
    /// haft did not probe the provider, because the provider is not selected, has no key, or is a command.
    NotAsked,
    /// The server sent a response of any status.
    Answers,
    /// The server sent no response in time.
    Silent,
}

/// Probes the server of a provider. A probe requests the list of models, which costs nothing.
pub async fn server_state(
    config: &ResolvedConfig,
    name: &str,
    variables: VariableSource<'_>,
    scope: ProbeScope,
) -> ServerProbeOutcome {
    if kind(config, name) == claude_code::NAME {
        return ServerProbeOutcome::NotAsked;
    }
    let Ok(provider) = provider(config, name, variables) else { return ServerProbeOutcome::NotAsked };
    match scope {
        ProbeScope::Local if !provider.is_local() => ServerProbeOutcome::NotAsked,
        ProbeScope::Local | ProbeScope::All => {
            if provider.answers(PROBE_TIMEOUT).await {
                ServerProbeOutcome::Answers
            } else {
                ServerProbeOutcome::Silent
            }
        }
    }
}

/// Returns the names of all usable providers.
pub fn known(config: &ResolvedConfig) -> Vec<String> {
    let rows = PROVIDERS.iter().map(|row| row.name).chain([claude_code::NAME]).map(str::to_owned);
    let mut names: Vec<String> = rows.chain(config.providers.keys().cloned()).collect();
    names.sort();
    names.dedup();
    names
}

fn overrides(
    name: &str,
    wanted: &ProviderSettings,
    variables: VariableSource<'_>,
) -> Result<ProviderOverrides, ModelsError> {
    let fill = |key: &str, template: &SecretTemplate| {
        expand(&template.0, variables).map_err(|error| ModelsError::Variable {
            key: format!("providers.{name}.{key}"),
            message: error.to_string(),
        })
    };
    let optional =
        |key: &str, template: Option<&SecretTemplate>| template.map(|text| fill(key, text)).transpose();
    let headers: Result<Vec<_>, ModelsError> = wanted
        .headers
        .iter()
        .map(|(header, text)| Ok((header.clone(), fill(&format!("headers.{header}"), text)?.into())))
        .collect();
    Ok(ProviderOverrides {
        format: wanted.format,
        base_url: optional("baseUrl", wanted.base_url.as_ref())?,
        key: optional("apiKey", wanted.api_key.as_ref())?.map(Into::into),
        headers: headers?,
        extra_body: wanted.extra_body.clone(),
    })
}

/// The reason why no model can be used, as a message for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ModelsError {
    /// Neither the caller, the agent nor the configuration names a model.
    #[error("no model is configured; set `models.default` in the configuration")]
    NoModel,
    /// The model name is invalid.
    #[error("{0}")]
    Name(String),
    /// The part of a model name before the `/` is not a configured or built-in provider.
    #[error(
        "there is no model provider `{}`; {}known providers: {}",
        printable(provider),
        did_you_mean(provider, known),
        known.join(", ")
    )]
    Unknown {
        /// The part of the model name before the `/`.
        provider: String,
        /// The known provider names.
        known: Vec<String>,
    },
    /// A variable is not set, or a file cannot be used.
    #[error("{key}: {message}")]
    Variable {
        /// The configuration key with the variable or file name.
        key: String,
        /// The problem, as a message for the operator.
        message: String,
    },
    /// The provider has no API key or no address, or its address is not valid.
    #[error("{provider}: {error}")]
    Setup {
        /// The name of the provider.
        provider: String,
        /// The missing or invalid setting.
        error: SetupError,
    },
    /// An agent has a budget in US dollars, but the price of its model is unknown, so the budget cannot be enforced.
    #[error(
        "agent `{}` has a budget in US dollars, but the price of the model `{}` is not known, so the \
         budget would never end the run; set the price in `models.settings`, or use `budget.tokens`",
        printable(agent),
        printable(&model.to_string())
    )]
    NoPrice {
        /// The agent with the budget.
        agent: String,
        /// The model without a price.
        model: ModelName,
    },
    /// The HTTP client could not be built, or the provider did not list its models.
    #[error("{0}")]
    Client(ModelError),
    /// A problem with a provider that runs a command.
    #[error("{provider}: {problem}")]
    Command {
        /// The name of the provider.
        provider: String,
        /// The problem, as a message for the operator.
        problem: String,
    },
}

fn did_you_mean(provider: &str, known: &[String]) -> String {
    let nearest = haft_config::nearest(&printable(provider), known.iter());
    nearest.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ResolvedConfig {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("haft.json");
        std::fs::write(&file, text).unwrap();
        let sources =
            haft_config::ConfigSources { named: Some(&file), ..haft_config::ConfigSources::default() };
        haft_config::load(sources, &|_| None).unwrap().resolved
    }

    fn variables(name: &str) -> Option<String> {
        (name == "MY_KEY").then(|| "k-1234567890".to_owned())
    }

    #[test]
    fn default_model_is_used_if_fast_or_complex_is_not_set() {
        let one = config(r#"{"models": {"default": "ollama/llama3"}}"#);
        let (provider, fast, complex) = build_provider(&one, &variables).unwrap();
        assert_eq!((provider.name(), fast.as_str(), complex.as_str()), ("ollama", "llama3", "llama3"));
        let two = r#"{"models": {"default": "ollama/a", "fast": "ollama/b", "complex": "ollama/c/d"}}"#;
        let (_, fast, complex) = build_provider(&config(two), &variables).unwrap();
        assert_eq!((fast.as_str(), complex.as_str()), ("b", "c/d"));
    }

    fn owned((one, other): (&str, &str)) -> (String, String) {
        (one.to_owned(), other.to_owned())
    }

    #[test]
    fn runs_with_different_provider_addresses_have_separate_circuits() {
        let config = config(
            r#"{"providers": {"own": {"kind": "compatible", "baseUrl": "${URL}", "apiKey": "k"}},
                "models": {"default": "own/a"}}"#,
        );
        let names = ["own/a", "ollama/b"].map(|name| ModelName::parse(name).unwrap());
        let circuits = ProviderCircuits::default();
        let addresses = ["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"];
        for address in addresses {
            let variables = move |name: &str| (name == "URL").then(|| address.to_owned());
            let providers = ModelProviders::sharing(ClientPool::default(), circuits.clone());
            providers.chain(None, &config, &names, &variables).unwrap();
        }
        let known = circuits.addresses();
        assert_eq!(known[..2], [("ollama", "http://127.0.0.1:11434"), ("own", addresses[0])].map(owned));
        assert_eq!(known[2..], [("own", addresses[1])].map(owned));
    }

    #[test]
    fn tools_that_do_not_fit_into_a_request_are_reported() {
        let tools = |count: usize, bytes: usize| -> Vec<ToolDefinition> {
            let schema = serde_json::json!({ "type": "object" });
            let one = |at: usize| ToolDefinition::new(&format!("t{at}"), "x".repeat(bytes), schema.clone());
            (0..count).map(one).collect()
        };
        let check = |model: &str, tools: &[ToolDefinition], expected: Option<&str>| {
            let found = tool_fit(&config(&format!(r#"{{"models": {{"default": "{model}"}}}}"#)), tools);
            let problem = found.problem.unwrap_or_default();
            assert_eq!(problem.contains(expected.unwrap_or("-")), expected.is_some(), "{model}: {problem}");
            assert_eq!(problem.is_empty(), expected.is_none(), "{model}: {problem}");
        };
        check("openai/gpt-5", &tools(128, 100), None);
        check("openai/gpt-5", &tools(129, 100), Some("accepts at most 128 tools"));
        check("anthropic/claude-sonnet-4-5", &tools(129, 100), None);
        check("anthropic/claude-sonnet-4-5", &tools(1_000, 2_000), Some("has only 200000 tokens"));
        check("anthropic/my-own", &tools(40, 1 << 20), Some("accepts at most 33554432 bytes"));
        check("ollama/my-own", &tools(40, 1 << 20), None);
    }

    #[test]
    fn hidden_tools_are_loaded_by_name_only_if_they_fit_into_a_request() {
        let tools = |count: usize, bytes: usize| -> Vec<ModelTool> {
            let schema = Arc::new(serde_json::json!({ "type": "object" }));
            let one = |at: usize| ModelTool {
                name: format!("t{at}"),
                description: "x".repeat(bytes),
                input_schema: Arc::clone(&schema),
                strict: false,
            };
            (0..count).map(one).collect()
        };
        let check = |format: ModelApiFormat, tools: &[ModelTool], expected: bool| {
            assert_eq!(carries_hidden(format, tools), expected, "{format:?}: {} tools", tools.len());
        };
        check(ModelApiFormat::Anthropic, &tools(10_000, 100), true);
        check(ModelApiFormat::Anthropic, &tools(10_001, 100), false);
        check(ModelApiFormat::Anthropic, &tools(1_000, 20_000), false);
        check(ModelApiFormat::OpenaiResponses, &tools(1_000, 20_000), true);
    }

    #[test]
    fn claude_code_defaults_to_sonnet_and_opus() {
        let told = |text: &str| {
            let (_, fast, complex) = build_provider(&config(text), &variables).unwrap();
            (fast, complex)
        };
        let plain = told(r#"{"models": {"default": "claude-code/sonnet"}}"#);
        assert_eq!(plain, ("sonnet".to_owned(), "opus".to_owned()));
        let named =
            r#"{"models": {"default": "claude-code/sonnet", "complex": "claude-code/claude-opus-4-6"}}"#;
        assert_eq!(told(named).1, "claude-opus-4-6");
    }

    #[test]
    fn model_chains_share_one_provider_instance() {
        let config = config(r#"{"providers": {"mine": {"baseUrl": "http://h/v1", "apiKey": "k"}}}"#);
        let providers = ModelProviders::default();
        let chain = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| ModelName::parse(name).unwrap()).collect();
            providers.chain(None, &config, &names, &variables).map(|_| ()).unwrap();
            providers.built.lock().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(chain(&["mine/a"]), ["mine".to_owned()].into());
        let first = Arc::clone(&providers.built.lock().unwrap()["mine"]);
        assert_eq!(chain(&["mine/b", "ollama/x"]), ["mine".to_owned(), "ollama".to_owned()].into());
        assert!(Arc::ptr_eq(&first, &providers.built.lock().unwrap()["mine"]));
        // A provider that runs a command is not shared, so it adds no entry.
        assert_eq!(chain(&["claude-code/sonnet"]).len(), 2);
    }

    #[test]
    fn provider_errors_name_missing_settings_and_hide_keys() {
        let said = |text: &str, name: &str| {
            provider(&config(text), name, &variables).map(|_| ()).unwrap_err().to_string()
        };
        assert!(
            build_provider(&config("{}"), &variables)
                .map(|_| ())
                .unwrap_err()
                .to_string()
                .contains("set `models.default`")
        );
        assert!(said("{}", "openai").contains("set OPENAI_API_KEY"));
        assert!(said("{}", "nobody").contains("known providers: anthropic, azure"));
        assert!(said(r#"{"providers": {"mine": {}}}"#, "mine").contains("`baseUrl`"));
        let unset = r#"{"providers": {"mine": {"baseUrl": "http://h", "apiKey": "${NONE}"}}}"#;
        assert!(said(unset, "mine").starts_with("providers.mine.apiKey: variable `NONE` is not set"));
        let good = config(r#"{"providers": {"mine": {"baseUrl": "http://h/v1", "apiKey": "${MY_KEY}"}}}"#);
        let built = provider(&good, "mine", &variables).unwrap();
        assert!(!format!("{built:?} {good:?}").contains("1234567890"));
    }
}
