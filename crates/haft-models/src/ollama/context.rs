//! Estimates the context size that a request needs, and detects truncated prompts.

use crate::wire::DecodeContext;

/// The minimum context size that is requested, in tokens.
const CONTEXT_TOKENS_MIN: usize = 8192;

/// The maximum context size that is requested unless the caller sets a size, in tokens. The context takes memory on the
/// caller's machine.
const CONTEXT_TOKENS_MAX: usize = 131_072;

/// A low estimate of the average number of bytes per token in natural language and code.
const BYTES_PER_TOKEN_MIN: usize = 3;

/// An upper bound of the average number of bytes per token in a whole prompt.
const BYTES_PER_TOKEN_MAX: usize = 8;

/// The number of bytes per token that prose rarely exceeds.
const BYTES_PER_TOKEN_LIKELY: usize = 5;

/// The number of tokens reserved for the answer if the caller sets no limit.
pub(super) const OUTPUT_TOKENS_DEFAULT: u32 = 4096;

/// Returns a context size that is large enough for the prompt and its answer. The size is a power of two, because the
/// server reloads the model whenever the size changes.
pub(super) fn tokens_for(text_bytes: usize, output_tokens_max: Option<u32>) -> usize {
    let output = output_tokens_max.unwrap_or(OUTPUT_TOKENS_DEFAULT) as usize;
    let needed = (text_bytes / BYTES_PER_TOKEN_MIN).saturating_add(output);
    needed.clamp(CONTEXT_TOKENS_MIN, CONTEXT_TOKENS_MAX).next_power_of_two()
}

/// Detects a truncated prompt. Returns the minimum token count of the prompt if the server read fewer tokens, or `None`
/// if the server may have read the whole prompt. If the prompt probably exceeds the context size, uses its likely token
/// count as the minimum, because the server must then have truncated the prompt.
pub(super) fn truncated_prompt_tokens(decode_context: &DecodeContext, read_tokens: u64) -> Option<u64> {
    let (least, likely) =
        (decode_context.text_bytes / BYTES_PER_TOKEN_MAX, decode_context.text_bytes / BYTES_PER_TOKEN_LIKELY);
    let (least, likely) = (least as u64, likely as u64);
    let fits = decode_context.context_tokens.is_none_or(|context| likely <= context);
    let read_all = read_tokens >= if fits { least } else { likely };
    (!read_all).then_some(if fits { least } else { likely })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_prompt_is_detected_from_the_token_count() {
        let check = |text_bytes: usize, context_tokens: Option<u64>, read: u64, expected: Option<u64>| {
            let decode_context = DecodeContext { turn: 1, text_bytes, context_tokens };
            assert_eq!(truncated_prompt_tokens(&decode_context, read), expected, "{decode_context:?} {read}");
        };
        // In this case, nearly all of the prompt is missing.
        check(63_000, None, 2000, Some(7875));
        check(63_000, Some(32_768), 2000, Some(7875));
        // In this case, the server truncated the prompt to the context size.
        check(48_000, Some(8192), 8000, Some(9600));
        check(48_000, Some(8192), 5000, Some(9600));
        // The server read the whole prompt, which has the maximum number of bytes per token.
        check(48_000, Some(16_384), 6000, None);
        // The server read the whole prompt, which exactly fills the context.
        check(40_000, Some(8192), 8192, None);
        check(400, None, 100, None);
    }

    #[test]
    fn context_size_grows_by_doubling_up_to_a_maximum() {
        assert_eq!(tokens_for(100, None), 8192);
        assert_eq!(tokens_for(60_000, None), 32_768);
        assert_eq!(tokens_for(61_000, None), 32_768);
        assert_eq!(tokens_for(usize::MAX, Some(u32::MAX)), 131_072);
    }
}
