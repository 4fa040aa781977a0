//! Chooses the step that answers a request.

use std::collections::HashMap;

use crate::parsed_request::ParsedRequest;
use crate::script::{Script, ScriptStep, StepOrder};
use crate::wire::ApiFormat;

/// The maximum number of entries in each map. The server clears a full map.
const REMEMBERED_MAX: usize = 100_000;

/// The steps that have been used so far.
#[derive(Debug, Default)]
pub(crate) struct ScriptProgress {
    /// The number of requests for each turn of each conversation.
    attempts: HashMap<(ApiFormat, String, String, usize), usize>,
    /// The number of steps that are already used in each list, for scripts with strict order.
    given: HashMap<usize, usize>,
    /// The states of conversations that a request can continue, by response id.
    answers: HashMap<String, ResponseState>,
}

/// The state of a conversation after a response.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResponseState {
    first_user: String,
    turns: usize,
}

impl ScriptProgress {
    /// Returns the next step, and counts the attempt.
    pub(crate) fn next<'a>(
        &mut self,
        script: &'a Script,
        format: ApiFormat,
        asked: &ParsedRequest,
    ) -> Result<&'a ScriptStep, String> {
        let (list, steps) = steps_for(script, asked);
        let position = match script.order {
            StepOrder::ByTurn => {
                let first_user = asked.talk.first_user.clone().unwrap_or_default();
                count(&mut self.attempts, (format, asked.model.clone(), first_user, asked.talk.turns))
            }
            StepOrder::Strict => count(&mut self.given, list),
        };
        match script.order {
            StepOrder::ByTurn => attempt(steps, asked.talk.turns, position),
            StepOrder::Strict => steps.get(position).ok_or_else(|| {
                format!(
                    "the script is at its end: the script has {} steps, but this is request {}",
                    steps.len(),
                    position + 1
                )
            }),
        }
    }

    pub(crate) fn remember(&mut self, answer: String, asked: &ParsedRequest) {
        let first_user = asked.talk.first_user.clone().unwrap_or_default();
        make_room(&mut self.answers);
        self.answers.insert(answer, ResponseState { first_user, turns: asked.talk.turns + 1 });
    }

    /// Adds the stored state of the conversation to the request.
    pub(crate) fn restore_conversation(&self, asked: &mut ParsedRequest) -> Result<(), String> {
        let Some(previous) = &asked.previous else { return Ok(()) };
        let Some(stand) = self.answers.get(previous) else {
            return Err(format!("previous response with id '{previous}' not found"));
        };
        asked.talk.first_user = Some(stand.first_user.clone());
        asked.talk.turns += stand.turns;
        Ok(())
    }
}

fn steps_for<'a>(script: &'a Script, asked: &ParsedRequest) -> (usize, &'a [ScriptStep]) {
    let first_user = asked.talk.first_user.as_deref().unwrap_or_default();
    let found = script.conversations.iter().enumerate().find(|(_, it)| first_user.contains(&it.about));
    match found {
        Some((at, conversation)) => (at + 1, &conversation.steps),
        None => (0, &script.steps),
    }
}

/// Returns the step for an attempt at a turn. Further attempts repeat the last step of the turn.
fn attempt(steps: &[ScriptStep], turn: usize, attempt: usize) -> Result<&ScriptStep, String> {
    let of_turn: Vec<&ScriptStep> =
        steps.iter().zip(turns(steps)).filter(|(_, of)| *of == turn).map(|(step, _)| step).collect();
    match of_turn.get(attempt).or(of_turn.last()) {
        Some(step) => Ok(step),
        None => Err(format!(
            "the script has no step for this request, which has {turn} model turns; the script has steps for the turns {:?}",
            turns(steps)
        )),
    }
}

/// Returns the number of the turn for which each step is used.
fn turns(steps: &[ScriptStep]) -> Vec<usize> {
    let mut next = 0;
    let of_step = |step: &ScriptStep| {
        let turn = step.turn.unwrap_or(next);
        next = if step.completes_the_turn() { turn + 1 } else { turn };
        turn
    };
    steps.iter().map(of_step).collect()
}

fn count<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) -> usize {
    make_room(counts);
    let count = counts.entry(key).or_default();
    *count += 1;
    *count - 1
}

fn make_room<K, V>(map: &mut HashMap<K, V>) {
    if map.len() >= REMEMBERED_MAX {
        map.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{ErrorResponse, ResponseFault};
    use crate::parsed_request::ConversationSummary;

    fn asked(first_user: &str, turns: usize) -> ParsedRequest {
        let talk = ConversationSummary {
            first_user: Some(first_user.to_owned()),
            turns,
            ..ConversationSummary::default()
        };
        ParsedRequest { talk, ..ParsedRequest::default() }
    }

    /// Checks which steps are chosen for these requests, in this order. Each request is `(first user message, turns so
    /// far)`.
    #[track_caller]
    fn check(script: &Script, requests: &[(&str, usize)], expected: &[&str]) {
        let mut progress = ScriptProgress::default();
        let told: Vec<String> = requests
            .iter()
            .map(|(user, turns)| match progress.next(script, ApiFormat::Ollama, &asked(user, *turns)) {
                Ok(ScriptStep { fail: Some(failure), .. }) => failure.message.clone(),
                Ok(step) => format!("{:?}", step.say.first()).replace("Some(Text(\"", "").replace("\"))", ""),
                Err(error) => error,
            })
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn concurrent_conversations_each_get_their_own_steps() {
        let script = Script::of([ScriptStep::text("one"), ScriptStep::text("two")]);
        check(&script, &[("a", 0), ("b", 0), ("b", 1), ("a", 1)], &["one", "one", "two", "two"]);
    }

    #[test]
    fn retry_after_a_failed_step_gets_the_next_step_of_the_turn() {
        let cut = ScriptStep::text("cut").with_fault(ResponseFault::EndEarly { after_frames: 0 });
        let script = Script::of([
            ScriptStep::fail(ErrorResponse::new(503, "busy")),
            cut,
            ScriptStep::text("one"),
            ScriptStep::text("two"),
        ]);
        check(
            &script,
            &[("a", 0), ("b", 0), ("a", 0), ("a", 0), ("a", 1)],
            &["busy", "busy", "cut", "one", "two"],
        );
    }

    #[test]
    fn last_step_of_a_turn_repeats_for_further_attempts() {
        check(
            &Script::of([ScriptStep::fail(ErrorResponse::new(503, "busy"))]),
            &[("a", 0), ("a", 0)],
            &["busy", "busy"],
        );
    }

    #[test]
    fn first_user_message_selects_the_script_of_the_conversation() {
        let script = Script::of([ScriptStep::text("other")]).about("rain", [ScriptStep::text("wet")]);
        check(&script, &[("Will it rain?", 0), ("Hello", 0)], &["wet", "other"]);
    }

    #[test]
    fn strict_order_ignores_the_request_and_fails_after_the_last_step() {
        let script =
            Script::of([ScriptStep::text("one"), ScriptStep::text("two")]).in_order(StepOrder::Strict);
        let end = "the script is at its end: the script has 2 steps, but this is request 3";
        check(&script, &[("a", 0), ("a", 0), ("a", 0)], &["one", "two", end]);
    }

    #[test]
    fn request_beyond_the_script_fails_with_the_available_turns() {
        let end = "the script has no step for this request, which has 1 model turns; the script has steps for the turns [0]";
        check(&Script::of([ScriptStep::text("one")]), &[("a", 1)], &[end]);
    }
}
