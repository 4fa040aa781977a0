//! Reads YAML with the booleans of YAML 1.2: `true` and `false`. In YAML 1.1, `y`, `n`, `yes`, `no`, `on` and `off` are
//! booleans too, so that `required: [n]` would be a list with `false`.

use serde::de::DeserializeOwned;

/// The maximum number of values in a text, also after the expansion of its aliases.
const VALUES_MAX: usize = 100_000;

/// The maximum depth of nested values. The parser is recursive: in a debug build, 128 levels overflow the stack of a
/// thread.
const DEPTH_MAX: usize = 64;

/// The maximum number of anchors in a text.
const ANCHORS_MAX: usize = 256;

/// The maximum number of aliases in a text.
const ALIASES_MAX: usize = 64;

/// Parses a text. The limits are our own, so that a new version of the parser cannot loosen them: aliases of aliases
/// would otherwise expand a few hundred bytes to gigabytes.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! {
            max_nodes: VALUES_MAX,
            max_events: 2 * VALUES_MAX,
            max_depth: DEPTH_MAX,
            flow_nesting_limit: DEPTH_MAX,
            max_anchors: ANCHORS_MAX,
            max_aliases: ALIASES_MAX,
            max_recorded_anchor_events: 2 * VALUES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 2 * VALUES_MAX,
        },
    };
    serde_saphyr::from_str_with_options(text, options)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn yaml_booleans_are_only_true_and_false() {
        let read: Value = from_str("[y, n, yes, no, on, off, true, false]").unwrap();
        assert_eq!(read, json!(["y", "n", "yes", "no", "on", "off", true, false]));
    }

    #[test]
    fn text_that_exceeds_a_limit_is_an_error() {
        let check = |text: &str, is_accepted: bool| {
            let read: Result<Value, _> = from_str(text);
            assert_eq!(read.is_ok(), is_accepted, "{:.80}: {:?}", text, read.err());
        };
        let aliases = |count: usize| format!("a: &a x\nb: [{}]", vec!["*a"; count].join(", "));
        check(&aliases(ALIASES_MAX), true);
        check(&aliases(ALIASES_MAX + 1), false);
        let anchors =
            |count: usize| (0..count).map(|at| format!("- &a{at} x\n")).collect::<Vec<_>>().concat();
        check(&anchors(ANCHORS_MAX), true);
        check(&anchors(ANCHORS_MAX + 1), false);
        let values = |count: usize| "- x\n".repeat(count);
        check(&values(VALUES_MAX / 2), true);
        check(&values(VALUES_MAX), false);
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        check(&deep(DEPTH_MAX - 1), true);
        check(&deep(DEPTH_MAX + 1), false);
    }
}
