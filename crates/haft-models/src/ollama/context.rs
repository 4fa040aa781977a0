//! How large a context a request needs, and whether the server read all of it.

use crate::wire::Asked;

/// Less than a bundled default is never asked for.
const CONTEXT_TOKENS_MIN: usize = 8192;

/// More than this needs the asker's word: it costs memory on the asker's own machine.
const CONTEXT_TOKENS_MAX: usize = 131_072;

/// Text of a model's own languages and code has at least this many bytes in a token, on average.
const BYTES_PER_TOKEN_MIN: usize = 3;

/// And never more than this many, over a whole prompt.
const BYTES_PER_TOKEN_MAX: usize = 8;

/// And hardly ever more than this many, in prose.
const BYTES_PER_TOKEN_LIKELY: usize = 5;

/// Room for the answer when nobody says how long it may be.
const OUTPUT_TOKENS_DEFAULT: usize = 4096;

/// A context that the prompt and its answer fit into. Doubling steps, because the server loads the model anew for each.
pub(super) fn tokens_for(text_bytes: usize, output_tokens_max: Option<u32>) -> usize {
    let output = output_tokens_max.map_or(OUTPUT_TOKENS_DEFAULT, |tokens| tokens as usize);
    let needed = (text_bytes / BYTES_PER_TOKEN_MIN).saturating_add(output);
    needed.clamp(CONTEXT_TOKENS_MIN, CONTEXT_TOKENS_MAX).next_power_of_two()
}

/// The fewest tokens that the prompt must have had if the server read less of it; nothing when it may have read all. A
/// server that read no more than its context holds, of a prompt that hardly fits into it, has cut it to fit.
pub(super) fn cut_from(asked: &Asked, read_tokens: u64) -> Option<u64> {
    let (least, likely) = (asked.text_bytes / BYTES_PER_TOKEN_MAX, asked.text_bytes / BYTES_PER_TOKEN_LIKELY);
    let (least, likely) = (least as u64, likely as u64);
    let fits = asked.context_tokens.is_none_or(|context| likely <= context);
    let read_all = read_tokens >= if fits { least } else { likely };
    (!read_all).then_some(if fits { least } else { likely })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_was_cut_is_told_from_one_that_was_read() {
        let check = |text_bytes: usize, context_tokens: Option<u64>, read: u64, expected: Option<u64>| {
            let asked = Asked { turn: 1, text_bytes, context_tokens };
            assert_eq!(cut_from(&asked, read), expected, "{asked:?} {read}");
        };
        // Nearly all of it is gone.
        check(63_000, None, 2000, Some(7875));
        check(63_000, Some(32_768), 2000, Some(7875));
        // Cut to what the context holds.
        check(48_000, Some(8192), 8000, Some(9600));
        check(48_000, Some(8192), 5000, Some(9600));
        // All of it: as many bytes in a token as there may be, or just as many as fit.
        check(48_000, Some(16_384), 6000, None);
        check(40_000, Some(8192), 8192, None);
        check(400, None, 100, None);
    }

    #[test]
    fn the_context_grows_in_doubling_steps_and_has_an_end() {
        assert_eq!(tokens_for(100, None), 8192);
        assert_eq!(tokens_for(60_000, None), 32_768);
        assert_eq!(tokens_for(61_000, None), 32_768);
        assert_eq!(tokens_for(usize::MAX, Some(u32::MAX)), 131_072);
    }
}
