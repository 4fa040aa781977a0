//! The sizes of requests to a model: its context window, the space for its reply, and the buffer for inexact estimates.

use haft_config::agents::ModelParameters;
use haft_config::resolved::ModelSettings;
use haft_core::run::limits::RunContextLimit;
use haft_models::capability::default_output_tokens;
use haft_models::model_data::sizes_of;

/// The context window of a model that neither the configuration nor haft's built-in model data lists, in tokens.
const WINDOW_TOKENS_DEFAULT: u32 = 131_072;

/// The space that is reserved for a reply if the request contains no output limit, in tokens.
const OUTPUT_TOKENS_ASSUMED: u32 = 8192;

/// The maximum and the minimum of the default buffer, in tokens. In between, the buffer is a sixteenth of the window,
/// so that a model with a window of 8,192 tokens can still work.
const BUFFER_TOKENS_MAX: u32 = 8192;
const BUFFER_TOKENS_MIN: u32 = 256;
const BUFFER_WINDOW_SHARE: u32 = 16;

/// The sizes of the requests of one agent to one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestSizes {
    /// The limit of output tokens that a request contains; `None` if the provider sets the limit.
    pub(super) output_tokens_max: Option<u32>,
    /// The context window that a request asks for, for providers that let the client set it; `None` for the model's
    /// default.
    pub(super) context_tokens: Option<u32>,
    pub(super) context: RunContextLimit,
}

/// Returns the sizes: the smaller of the agent's and the operator's values, or the values of haft's built-in model data
/// if both are missing.
pub(super) fn request_sizes(
    asking: &ModelParameters,
    settings: Option<&ModelSettings>,
    model: &str,
) -> RequestSizes {
    let known = sizes_of(model);
    let context_tokens =
        smaller(asking.context_tokens, settings.and_then(|settings| settings.context_tokens));
    let window = context_tokens.or(known.context_tokens).unwrap_or(WINDOW_TOKENS_DEFAULT);
    let written = smaller(asking.output_tokens_max, settings.and_then(|settings| settings.output_tokens_max));
    let usual = || default_output_tokens(model, asking.effort).map(|tokens| tokens.min(window / 2));
    let output_tokens_max = written.or_else(usual);
    let reserved = output_tokens_max.unwrap_or(OUTPUT_TOKENS_ASSUMED.min(window / 4));
    let share = (window / BUFFER_WINDOW_SHARE).clamp(BUFFER_TOKENS_MIN, BUFFER_TOKENS_MAX);
    let context = RunContextLimit {
        window_tokens: window.into(),
        output_tokens: reserved.into(),
        buffer_tokens: asking.context_buffer_tokens.unwrap_or(share).into(),
    };
    RequestSizes { output_tokens_max, context_tokens, context }
}

fn smaller(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use haft_config::agents::{AgentDefinition, AgentReadContext};

    use super::*;

    fn asking(yaml: &str) -> ModelParameters {
        let around = AgentReadContext { read: &|_| Err(String::new()), variable: &|_| None };
        AgentDefinition::read("a.md", &format!("---\n{yaml}\n---\n"), around).unwrap().asking
    }

    #[test]
    fn request_sizes_come_from_the_agent_the_operator_or_the_model_data() {
        let check = |yaml: &str,
                     settings: (Option<u32>, Option<u32>),
                     model: &str,
                     expected: (Option<u32>, u64, u64)| {
            let settings = ModelSettings {
                output_tokens_max: settings.0,
                context_tokens: settings.1,
                ..ModelSettings::default()
            };
            let sizes = request_sizes(&asking(yaml), Some(&settings), model);
            let found = (sizes.output_tokens_max, sizes.context.window_tokens, sizes.context.buffer_tokens);
            assert_eq!(found, expected, "{yaml} {model}");
        };
        check("", (None, None), "claude-sonnet-4-5", (Some(32_768), 200_000, 8192));
        check("reasoning: highest", (None, None), "claude-sonnet-4-5", (Some(64_000), 200_000, 8192));
        check("", (None, None), "gpt-4o", (Some(16_384), 128_000, 8000));
        check("", (None, None), "claude-3-haiku-20240307", (Some(4096), 200_000, 8192));
        check("maxOutputTokens: 700", (None, None), "gpt-4o", (Some(700), 128_000, 8000));
        check("maxOutputTokens: 700", (Some(500), None), "gpt-4o", (Some(500), 128_000, 8000));
        check("", (None, None), "my-own", (None, 131_072, 8192));
        check("", (None, Some(8192)), "my-own", (None, 8192, 512));
        check("contextBuffer: 100", (None, Some(8192)), "my-own", (None, 8192, 100));
    }

    #[test]
    fn conversation_gets_most_of_a_window_of_8192_tokens() {
        let sizes = request_sizes(&asking("contextTokens: 8192"), None, "my-own");
        assert!(!sizes.context.is_full(5600) && sizes.context.is_full(5700), "{sizes:?}");
        assert_eq!(request_sizes(&asking(""), None, "llama3:8b").context.window_tokens, 8192);
        assert_eq!(request_sizes(&asking(""), None, "llama3:8b").context_tokens, None);
    }
}
