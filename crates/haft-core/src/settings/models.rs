//! Settings for requests to model providers.

use std::time::Duration;

/// The names of all built-in providers except [`CLAUDE_CODE`]. `haft-models` has a table with one row for each of them.
pub const PROVIDER_NAMES: &[&str] = &[
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "ollama",
    "openrouter",
    "groq",
    "mistral",
    "deepseek",
    "xai",
    "together",
    "azure",
    "vllm",
    "llamacpp",
    "lmstudio",
    "compatible",
];

/// The provider name for servers with an OpenAI-compatible API that have no row of their own.
pub const COMPATIBLE: &str = "compatible";

/// The name of the provider that runs the Claude Code command.
pub const CLAUDE_CODE: &str = "claude-code";

/// The name of the Claude Code command.
pub const CLAUDE_CODE_COMMAND: &str = "claude";

/// The maximum number of turns that the Claude Code command takes before haft asks it to continue.
pub const CLAUDE_CODE_TURNS_MAX: u32 = 25;

/// The maximum number of times that haft resumes a session of the command. After that, the request fails.
pub const CLAUDE_CODE_RESUMES_MAX: u32 = 5;

/// Selects whether a reply is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyDelivery {
    /// The provider sends the whole reply when it is complete.
    Whole,
    /// The provider sends the reply in parts while the model writes it.
    Streamed,
}

/// The way in which a model gets its tools and calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCalling {
    /// The model uses its provider's own tool-calling API.
    Native,
    /// The tools are described in the prompt, and calls are read from tagged JSON.
    Prompted,
    /// The model gets no tools.
    None,
}

/// The retry policy of a request. A model request is retried only before its first token; a request to an HTTP service
/// only if its method is repeatable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The maximum number of attempts, including the first one.
    pub attempts_max: u32,
    /// The delay after the first failure. It doubles with each further failure.
    pub delay_first: Duration,
    /// The maximum delay between two attempts.
    pub delay_max: Duration,
    /// The maximum `Retry-After`. If the provider asks for a longer delay, the request fails at once.
    pub retry_after_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts_max: 4,
            delay_first: Duration::from_millis(500),
            delay_max: Duration::from_secs(30),
            retry_after_max: Duration::from_mins(2),
        }
    }
}

impl RetryPolicy {
    /// A retry policy that allows only one attempt.
    pub const NEVER: RetryPolicy = RetryPolicy {
        attempts_max: 1,
        delay_first: Duration::ZERO,
        delay_max: Duration::ZERO,
        retry_after_max: Duration::ZERO,
    };

    /// Returns the delay after failed attempt `number`, counted from 1. Returns `None` if no attempt is left or if the
    /// server asks for a delay that is too long. `jitter` is between 0 and 1; it spreads out the retries of clients
    /// that failed at the same time.
    pub fn delay(&self, number: u32, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        let requested = retry_after.unwrap_or_default();
        if number >= self.attempts_max || requested > self.retry_after_max {
            return None;
        }
        let doublings = number.saturating_sub(1).min(16);
        let backoff = self.delay_first.saturating_mul(1 << doublings).min(self.delay_max);
        let spread = backoff.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        // The server's delay is a lower bound. The jitter on top keeps clients that got the same delay from retrying at
        // the same moment.
        Some(if requested.is_zero() { spread } else { requested + spread / 4 })
    }
}

/// The timeouts for the parts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTimeouts {
    /// The time limit for opening a connection, including DNS and TLS.
    pub connect: Duration,
    /// The time limit from the request to the response headers. A local server may have to load the model first.
    pub first_byte: Duration,
    /// The maximum pause within a streamed reply.
    pub between_chunks: Duration,
    /// The time limit for the whole request, including all attempts and the delays between them.
    pub total: Duration,
    /// The idle time on an HTTP/2 connection with a pending request after which haft sends a PING. Requests share the
    /// connection, so a silently dead connection would block all of them.
    pub ping_after: Duration,
    /// The time limit for the server's reply to the PING.
    pub pong_within: Duration,
}

impl Default for ModelTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_byte: Duration::from_mins(5),
            between_chunks: Duration::from_mins(2),
            total: Duration::from_hours(1),
            ping_after: Duration::from_secs(20),
            pong_within: Duration::from_secs(20),
        }
    }
}
