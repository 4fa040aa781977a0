//! Notes of a run as sentences for people.

use crate::compaction::CompactionScope;
use crate::run::final_turn::FinalTurnReason;
use crate::run::{Compaction, RunNote, SummaryAuthor};
use crate::text::controls_terminal;

/// Returns a note as a sentence for a person.
pub fn note_text(note: &RunNote) -> String {
    match note {
        RunNote::Status(status) => status.now.clone(),
        RunNote::Refused { tool, why } => format!("{}: {why}", one_line(tool)),
        RunNote::AskedAgain { attempt, why, text: _ } => {
            format!("haft asked the model again (attempt {attempt}): {why}")
        }
        RunNote::Circling { tool, times } => {
            format!("the model called {} {times} times in a row with the same arguments", one_line(tool))
        }
        RunNote::ToolsFound(names) => {
            format!("the model found tools with `tool_search`: {}", listed(names))
        }
        RunNote::ToolsAppended(names) => format!("the model now also sees these tools: {}", listed(names)),
        RunNote::FinalTurn(why) => match why {
            FinalTurnReason::Stopped => "the next turn is the last: the run was asked to stop".into(),
            FinalTurnReason::Budget => "the next turn is the last: the budget is used up".into(),
            FinalTurnReason::ContextFull => "the next turn is the last: the context is full".into(),
            FinalTurnReason::MaxToolCalls => "the next turn is the last: no tool calls are left".into(),
            FinalTurnReason::MaxToolCallsPerTurn => {
                "the next turn is the last: the model again made too many tool calls in one turn".into()
            }
            FinalTurnReason::TaskComplete => "the next turn is the last: the task is complete".into(),
            FinalTurnReason::OnlyTurn | FinalTurnReason::LastTurn => "the next turn is the last".into(),
        },
        RunNote::Compacted(compaction) => compaction_text(compaction),
        RunNote::CompactionFault { why } => why.clone(),
    }
}

fn compaction_text(compaction: &Compaction) -> String {
    let Compaction { before_tokens, after_tokens, scope, items, summary } = compaction;
    let what = match (scope, summary) {
        (CompactionScope::Outputs, _) => format!("{items} old tool outputs moved to the archive"),
        (CompactionScope::Turns, Some(SummaryAuthor::List)) => {
            format!("{items} old messages moved to the archive, without a summary")
        }
        (CompactionScope::Turns, Some(SummaryAuthor::Model) | None) => {
            format!("{items} old messages summarized")
        }
    };
    format!("haft compacted the context from {before_tokens} to {after_tokens} tokens: {what}")
}

/// The maximum number of names that a note lists.
const NAMES_MAX: usize = 5;

fn listed(names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMES_MAX).map(|name| one_line(name)).collect();
    if names.len() > NAMES_MAX {
        shown.push(format!("{} more", names.len() - NAMES_MAX));
    }
    shown.join(", ")
}

/// The maximum length of a tool name in a note, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Returns the first line of a text that a model wrote, without control characters.
fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut shown: String = line.chars().filter(|c| !controls_terminal(*c)).take(NAME_CHARS_MAX).collect();
    if line.chars().count() > NAME_CHARS_MAX || text.trim().lines().count() > 1 {
        shown.push('…');
    }
    shown
}
