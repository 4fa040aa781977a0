//! Settings of requests to model providers.

use std::time::Duration;

/// The name of every provider that is built in, but for [`CLAUDE_CODE`]. `haft-models` has one row for each.
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

/// The provider for servers that speak an OpenAI-compatible API and have no row.
pub const COMPATIBLE: &str = "compatible";

/// The provider that is a command: Claude Code.
pub const CLAUDE_CODE: &str = "claude-code";

/// The name of that command.
pub const CLAUDE_CODE_COMMAND: &str = "claude";

/// The largest number of turns that the command takes before haft asks it to continue.
pub const CLAUDE_CODE_TURNS_MAX: u32 = 25;

/// The largest number of times that haft resumes a session of the command. After that, its failure is final.
pub const CLAUDE_CODE_RESUMES_MAX: u32 = 5;

/// Whether a reply is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyDelivery {
    /// The provider sends the reply at once when it is complete.
    Whole,
    /// The provider sends the reply in pieces, while the model writes it.
    Streamed,
}

/// The way in which a model gets its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolCalling {
    /// By its provider's own API.
    Native,
    /// The tools are described in the prompt, and calls are read from tagged JSON.
    Prompted,
    /// Never: the model is shown no tools.
    None,
}

/// The retries of a request. A model's request is retried only before its first token, one to an HTTP service only
/// when its method is repeatable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The first attempt counts too.
    pub attempts_max: u32,
    /// The wait after the first failure; it doubles with each further one.
    pub delay_first: Duration,
    /// The longest wait between two attempts.
    pub delay_max: Duration,
    /// A longer `Retry-After` is a failure: the provider is not waited for.
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
    /// Makes one attempt only.
    pub const NEVER: RetryPolicy = RetryPolicy {
        attempts_max: 1,
        delay_first: Duration::ZERO,
        delay_max: Duration::ZERO,
        retry_after_max: Duration::ZERO,
    };

    /// Returns the wait after failed attempt `number`, counted from 1, or `None` when no attempt is left or the server
    /// asks for a wait that is too long. `jitter` is between 0 and 1; it spreads out the retries of clients that failed
    /// at the same time.
    pub fn delay(&self, number: u32, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        let requested = retry_after.unwrap_or_default();
        if number >= self.attempts_max || requested > self.retry_after_max {
            return None;
        }
        let doublings = number.saturating_sub(1).min(16);
        let backoff = self.delay_first.saturating_mul(1 << doublings).min(self.delay_max);
        let spread = backoff.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0));
        // The server's delay is a lower bound. The jitter on top keeps clients that got the same delay from returning
        // all at once.
        Some(if requested.is_zero() { spread } else { requested + spread / 4 })
    }
}

/// The time limits of the parts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelTimeouts {
    /// The time to open a connection, with DNS and TLS.
    pub connect: Duration,
    /// From the request to the head of the answer. A local server may load the model first.
    pub first_byte: Duration,
    /// The longest pause within a streamed reply.
    pub between_chunks: Duration,
    /// The whole request, with all attempts and the waits between them.
    pub total: Duration,
    /// Idle time on an HTTP/2 connection with a request under way, after which we send a PING. Requests share the
    /// connection, so one that died silently would hold up all of them.
    pub ping_after: Duration,
    /// The time limit for the server's answer to the PING.
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
