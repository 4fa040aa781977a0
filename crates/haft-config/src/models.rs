//! Resolves models and their providers.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use haft_core::conversation::ModelApiFormat;
use haft_core::price::Price;
use haft_core::settings::models::{
    CLAUDE_CODE, CLAUDE_CODE_COMMAND, CLAUDE_CODE_RESUMES_MAX, CLAUDE_CODE_TURNS_MAX, COMPATIBLE,
    ModelTimeouts, PROVIDER_NAMES, ReplyDelivery, RetryPolicy, ToolCalling,
};
use serde_json::{Map, Value};

use super::compaction::{CompactionSettings, CompactionStart};
use super::default;
use super::nearest;
use super::position::{child, item};
use super::resolve::{ConfigResolver, duration};
use super::written::models as written;

/// The configured models.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSelection {
    pub default: Option<ModelName>,
    /// The models for simple and for difficult steps; both belong to the provider of the default model.
    pub fast: Option<ModelName>,
    pub complex: Option<ModelName>,
    pub fallback: Vec<ModelName>,
    pub settings: BTreeMap<ModelName, ModelSettings>,
}

/// A model and its provider, in the form `provider/model`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelName {
    pub provider: String,
    /// The model name at the provider; it may contain slashes.
    pub model: String,
}

impl ModelName {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self { provider: provider.to_owned(), model: model.to_owned() })
            }
            _ => Err(format!(
                "expected a model as PROVIDER/MODEL, such as anthropic/claude-sonnet-4-5; got `{}`",
                super::printable(text)
            )),
        }
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

/// The settings of one model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    pub price: Option<Price>,
    pub tool_calling: Option<ToolCalling>,
    pub output_tokens_max: Option<u32>,
    pub context_tokens: Option<u32>,
}

/// The settings of one provider.
#[derive(Debug, Clone, PartialEq)]
pub struct ProviderSettings {
    /// The name of the provider's row in the provider table.
    pub kind: &'static str,
    pub base_url: Option<SecretTemplate>,
    pub api_key: Option<SecretTemplate>,
    pub headers: BTreeMap<String, SecretTemplate>,
    pub format: Option<ModelApiFormat>,
    pub ca_file: Option<SecretTemplate>,
    pub extra_body: Map<String, Value>,
    pub delivery: ReplyDelivery,
    pub timeouts: ModelTimeouts,
    pub retry: RetryPolicy,
    /// The settings of `claude-code`; other providers ignore them.
    pub command: CommandSettings,
}

/// The settings of a provider that runs a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandSettings {
    pub command: String,
    pub turns_max: u32,
    /// The built-in tools of the command that are enabled.
    pub allowed_tools: Vec<String>,
    pub resumes_max: u32,
}

/// A text with variables that are expanded on use. It may contain a secret, so `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretTemplate(pub String);

impl fmt::Debug for SecretTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretTemplate")
    }
}

impl ProviderSettings {
    /// Builds a built-in provider that the configuration does not mention.
    pub fn of_kind(kind: &'static str) -> Self {
        Self {
            kind,
            base_url: None,
            api_key: None,
            headers: BTreeMap::new(),
            format: None,
            ca_file: None,
            extra_body: Map::new(),
            delivery: ReplyDelivery::Streamed,
            timeouts: timeouts(&written::RawProvider::default()),
            retry: retry(&written::RawProvider::default()),
            command: command(&mut written::RawProvider::default()),
        }
    }
}

impl ConfigResolver<'_> {
    pub(super) fn providers(
        &mut self,
        written: BTreeMap<String, written::RawProvider>,
    ) -> BTreeMap<String, ProviderSettings> {
        let providers = written.into_iter();
        providers.map(|(name, written)| (name.clone(), self.provider(&name, written))).collect()
    }

    fn provider(&mut self, name: &str, mut written: written::RawProvider) -> ProviderSettings {
        let path = child("providers", name);
        if name.contains('/') || name.is_empty() {
            self.wrong(&path, "the name of a model provider must not be empty or contain a slash".into());
        }
        let named = written.kind.as_ref().map_or(name, |kind| kind.0.as_str());
        let kind = match named {
            CLAUDE_CODE => CLAUDE_CODE,
            named => built_in(named).unwrap_or(COMPATIBLE),
        };
        self.only_what_it_has(&path, kind, &written);
        let command = command(&mut written);
        let (timeouts, retry) = (timeouts(&written), retry(&written));
        let template = |text: super::value_format::TemplateText| SecretTemplate(text.0);
        ProviderSettings {
            kind,
            base_url: written.base_url.map(template),
            api_key: written.api_key.map(template),
            headers: written
                .headers
                .into_iter()
                .flatten()
                .map(|(name, text)| (name, template(text)))
                .collect(),
            format: written.format.map(Into::into),
            ca_file: written.ca_file.map(template),
            extra_body: self.extra_body(&child(&path, "extraBody"), written.extra_body.map(|json| json.0)),
            delivery: written.delivery.map_or(ReplyDelivery::Streamed, Into::into),
            timeouts,
            retry,
            command,
        }
    }

    /// Reports keys that this kind of provider does not support: a key without effect is a mistake.
    fn only_what_it_has(&mut self, path: &str, kind: &str, written: &written::RawProvider) {
        let over_http = [
            ("baseUrl", written.base_url.is_some()),
            ("apiKey", written.api_key.is_some()),
            ("headers", written.headers.is_some()),
            ("format", written.format.is_some()),
            ("caFile", written.ca_file.is_some()),
            ("extraBody", written.extra_body.is_some()),
            ("delivery", written.delivery.is_some()),
            ("connectTimeout", written.connect_timeout.is_some()),
            ("firstByteTimeout", written.first_byte_timeout.is_some()),
            ("chunkTimeout", written.chunk_timeout.is_some()),
            ("maxAttempts", written.max_attempts.is_some()),
            ("maxRetryAfter", written.max_retry_after.is_some()),
        ];
        let of_a_command = [
            ("command", written.command.is_some()),
            ("maxTurns", written.max_turns.is_some()),
            ("allowedTools", written.allowed_tools.is_some()),
            ("maxResumes", written.max_resumes.is_some()),
        ];
        let (keys, whose) = match kind {
            CLAUDE_CODE => (
                over_http.as_slice(),
                "the provider `claude-code` is a command, and this key is only for HTTP providers",
            ),
            _ => (of_a_command.as_slice(), "this key is only for the provider `claude-code`"),
        };
        for (key, _) in keys.iter().filter(|(_, is_set)| *is_set) {
            self.wrong(&child(path, key), whose.into());
        }
    }

    fn extra_body(&mut self, path: &str, written: Option<Value>) -> Map<String, Value> {
        match written {
            None => Map::new(),
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                self.wrong(path, "expected a JSON object".into());
                Map::new()
            }
        }
    }

    pub(super) fn models(
        &mut self,
        written: written::RawModels,
        providers: &BTreeMap<String, ProviderSettings>,
    ) -> ModelSelection {
        let name = |resolver: &mut Self, path: &str, text: &str| resolver.model_name(path, text, providers);
        let default = written.default.and_then(|text| name(self, "models.default", &text));
        let fast = written.fast.and_then(|text| name(self, "models.fast", &text));
        let complex = written.complex.and_then(|text| name(self, "models.complex", &text));
        let fallback = written.fallback.unwrap_or_default();
        let fallback = fallback
            .iter()
            .enumerate()
            .filter_map(|(index, text)| name(self, &item("models.fallback", index), text))
            .collect();
        let settings = written.settings.unwrap_or_default().into_iter();
        let settings = settings
            .filter_map(|(text, model)| {
                Some((name(self, &child("models.settings", &text), &text)?, settings_of(&model)))
            })
            .collect();
        for (path, other) in [("models.fast", &fast), ("models.complex", &complex)] {
            let same = |other: &ModelName| default.as_ref().is_some_and(|own| own.provider == other.provider);
            if other.as_ref().is_some_and(|other| !same(other)) {
                self.wrong(path, "expected a model from the same provider as `models.default`".into());
            }
        }
        ModelSelection { default, fast, complex, fallback, settings }
    }

    pub(super) fn compaction(
        &mut self,
        written: super::written::RawCompaction,
        providers: &BTreeMap<String, ProviderSettings>,
    ) -> CompactionSettings {
        let default = CompactionSettings::default();
        let at = written.at.map(|text| self.checked("compaction.at", CompactionStart::parse(&text.0)));
        CompactionSettings {
            at: at.flatten().unwrap_or(default.at),
            keep_turns: written.keep.unwrap_or(default.keep_turns),
            model: written.model.and_then(|text| self.model_name("compaction.model", &text, providers)),
        }
    }

    fn model_name(
        &mut self,
        path: &str,
        text: &str,
        providers: &BTreeMap<String, ProviderSettings>,
    ) -> Option<ModelName> {
        let name = self.checked(path, ModelName::parse(text))?;
        let known = built_in(&name.provider).is_some() || name.provider == CLAUDE_CODE;
        if !providers.contains_key(&name.provider) && !known {
            let built_in = [PROVIDER_NAMES, &[CLAUDE_CODE]].concat();
            let names = providers.keys().map(String::as_str).chain(built_in.iter().copied());
            let near = nearest(&name.provider, names);
            let near = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
            let message = format!(
                "there is no model provider `{}`; {near}add the provider to `providers`, or use one of {}",
                name.provider,
                built_in.join(", ")
            );
            self.wrong(path, message);
        }
        Some(name)
    }
}

fn built_in(name: &str) -> Option<&'static str> {
    PROVIDER_NAMES.iter().copied().find(|known| *known == name)
}

fn settings_of(written: &written::RawModelSettings) -> ModelSettings {
    ModelSettings {
        price: written.price.as_ref().map(|price| Price {
            input: price.input,
            output: price.output,
            cache_read: price.cache_read.unwrap_or(price.input),
            cache_write: price.cache_write.unwrap_or(price.input),
        }),
        tool_calling: written.tool_calling.map(Into::into),
        output_tokens_max: written.max_output_tokens,
        context_tokens: written.context_tokens,
    }
}

fn timeouts(written: &written::RawProvider) -> ModelTimeouts {
    let or = |wanted: Option<&super::value_format::Millis>, default| {
        wanted.cloned().map_or(Duration::from_millis(default), duration)
    };
    ModelTimeouts {
        connect: or(written.connect_timeout.as_ref(), default::CONNECT_TIMEOUT_MS),
        first_byte: or(written.first_byte_timeout.as_ref(), default::FIRST_BYTE_TIMEOUT_MS),
        between_chunks: or(written.chunk_timeout.as_ref(), default::CHUNK_TIMEOUT_MS),
        total: or(written.request_timeout.as_ref(), default::REQUEST_TIMEOUT_MS),
        ..ModelTimeouts::default()
    }
}

fn retry(written: &written::RawProvider) -> RetryPolicy {
    let longest = Duration::from_millis(default::RETRY_AFTER_MAX_MS);
    RetryPolicy {
        attempts_max: written.max_attempts.unwrap_or(default::ATTEMPTS_MAX),
        retry_after_max: written.max_retry_after.clone().map_or(longest, duration),
        ..RetryPolicy::default()
    }
}

fn command(written: &mut written::RawProvider) -> CommandSettings {
    CommandSettings {
        command: written.command.take().unwrap_or_else(|| CLAUDE_CODE_COMMAND.into()),
        turns_max: written.max_turns.unwrap_or(CLAUDE_CODE_TURNS_MAX),
        allowed_tools: written.allowed_tools.take().unwrap_or_default(),
        resumes_max: written.max_resumes.unwrap_or(CLAUDE_CODE_RESUMES_MAX),
    }
}
