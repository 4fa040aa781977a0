//! Detects loops: the same call in consecutive turns.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::digest::Digest;
use crate::tool::ToolCall;

/// The number of consecutive turns with the same call after which the run warns the model.
pub const REPEATS_TOLD: u32 = 3;

/// The number of consecutive turns with the same call after which the run ends.
pub const REPEATS_MAX: u32 = 5;

/// The calls of the last turn, each with its number of consecutive turns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RepeatCounts(pub(super) BTreeMap<Digest, u32>);

/// The result of the loop check for one turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RepeatCheck {
    Moving,
    /// The model repeated this call too often, and gets a warning.
    Circling {
        tool: String,
        times: u32,
    },
    /// The model repeated the call in spite of the warning.
    Stuck {
        tool: String,
        times: u32,
    },
}

impl RepeatCounts {
    /// Checks the calls of one turn. A call that occurs twice in a turn is counted once: it is wasteful, but not a
    /// loop.
    pub(super) fn turn<'a>(&mut self, calls: impl Iterator<Item = &'a ToolCall>) -> RepeatCheck {
        let mut now = BTreeMap::new();
        let mut worst: Option<(u32, &ToolCall)> = None;
        for call in calls {
            let digest = digest(call);
            let times = self.0.get(&digest).map_or(1, |times| times.saturating_add(1));
            now.insert(digest, times);
            if worst.is_none_or(|(most, _)| times > most) {
                worst = Some((times, call));
            }
        }
        self.0 = now;
        match worst {
            Some((times, call)) if times >= REPEATS_MAX => {
                RepeatCheck::Stuck { tool: call.name.clone(), times }
            }
            Some((times, call)) if times >= REPEATS_TOLD => {
                RepeatCheck::Circling { tool: call.name.clone(), times }
            }
            Some(_) | None => RepeatCheck::Moving,
        }
    }
}

/// Returns a digest of the call that ignores whitespace and the order of keys. Invalid JSON is compared as text.
fn digest(call: &ToolCall) -> Digest {
    let text = call.arguments.as_text();
    let arguments = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
    Digest::of_value(&Value::Array(vec![Value::from(call.name.as_str()), arguments]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::RawArguments;
    use crate::tool::CallId;

    fn check(turns: &[&[(&str, &str)]], expected: &str) {
        let mut repeats = RepeatCounts::default();
        let verdicts: String = turns
            .iter()
            .map(|calls| {
                let calls: Vec<_> = calls
                    .iter()
                    .map(|(name, arguments)| ToolCall {
                        id: CallId("x".into()),
                        name: (*name).into(),
                        arguments: RawArguments::from_text(*arguments),
                    })
                    .collect();
                match repeats.turn(calls.iter()) {
                    RepeatCheck::Moving => '.',
                    RepeatCheck::Circling { .. } => 't',
                    RepeatCheck::Stuck { .. } => 's',
                }
            })
            .collect();
        assert_eq!(verdicts, expected, "{turns:?}");
    }

    #[test]
    fn three_identical_calls_in_a_row_warn_the_model_and_five_end_the_run() {
        let a: &[(&str, &str)] = &[("read", r#"{"p": 1, "q": 2}"#)];
        let same: &[(&str, &str)] = &[("read", r#"{"q":2,"p":1}"#)];
        let b: &[(&str, &str)] = &[("read", r#"{"p": 2}"#)];
        check(&[a, a, a, a, a], "..tts");
        check(&[a, same, a, same, a], "..tts");
        check(&[a, a, b, a, a, a], ".....t");
        check(&[a, b, a, b, a, b, a], ".......");
        check(&[&[("read", "{oops")], &[("read", "{oops")], &[("read", "{oops")]], "..t");
    }

    #[test]
    fn repeated_call_is_counted_once_per_turn_despite_other_calls() {
        let with = |n: &'static str| vec![("read", "{}"), ("grep", n)];
        let turns = [with("1"), with("2"), with("3"), with("4"), with("5")];
        let turns: Vec<&[(&str, &str)]> = turns.iter().map(Vec::as_slice).collect();
        check(&turns, "..tts");
        check(&[&[("read", "{}"); 6]], ".");
    }
}
