//! How large a context a request needs, and whether the server read all of it.

/// Less than a bundled default is never asked for.
const CONTEXT_TOKENS_MIN: usize = 8192;

/// More than this needs the asker's word: it costs memory on the asker's own machine.
const CONTEXT_TOKENS_MAX: usize = 131_072;

/// Text of a model's own languages and code has at least this many bytes in a token, on average.
const BYTES_PER_TOKEN_MIN: usize = 3;

/// And never more than this many, over a whole prompt.
const BYTES_PER_TOKEN_MAX: usize = 8;

/// Room for the answer when nobody says how long it may be.
const OUTPUT_TOKENS_DEFAULT: usize = 4096;

/// A context that the prompt and its answer fit into. Doubling steps, because the server loads the model anew for each.
pub(super) fn tokens_for(text_bytes: usize, output_tokens_max: Option<u32>) -> usize {
    let output = output_tokens_max.map_or(OUTPUT_TOKENS_DEFAULT, |tokens| tokens as usize);
    let needed = (text_bytes / BYTES_PER_TOKEN_MIN).saturating_add(output);
    needed.clamp(CONTEXT_TOKENS_MIN, CONTEXT_TOKENS_MAX).next_power_of_two()
}

/// The fewest tokens that a prompt of this size can be.
pub(super) fn tokens_min(text_bytes: usize) -> u64 {
    (text_bytes / BYTES_PER_TOKEN_MAX) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_grows_in_doubling_steps_and_has_an_end() {
        assert_eq!(tokens_for(100, None), 8192);
        assert_eq!(tokens_for(60_000, None), 32_768);
        assert_eq!(tokens_for(61_000, None), 32_768);
        assert_eq!(tokens_for(usize::MAX, Some(u32::MAX)), 131_072);
    }
}
