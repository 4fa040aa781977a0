//! Asks the user at the terminal for the fields of an MCP server's elicitation request, one after the other.

mod form;

use std::io::{self, IsTerminal};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_tools::mcp::{ElicitationAnswer, Elicitor};
use serde_json::{Map, Value};

use self::form::{ElicitationForm, FormField, FormFieldInput};
use super::question::{self, QuestionTurn};
use super::terminal;

/// The maximum number of attempts per field before the request is cancelled.
const ATTEMPTS_MAX: usize = 3;

/// Asks on standard error and reads answers from standard input.
#[derive(Debug)]
pub(super) struct TerminalElicitor;

impl TerminalElicitor {
    /// Returns an elicitor only if standard input and standard error are both a terminal.
    pub(super) fn for_interactive_terminal() -> Option<Arc<dyn Elicitor>> {
        let there = io::stdin().is_terminal() && io::stderr().is_terminal();
        there.then(|| Arc::new(Self) as Arc<dyn Elicitor>)
    }
}

impl Elicitor for TerminalElicitor {
    fn elicit<'a>(&'a self, server: &'a str, request: Value) -> BoxFuture<'a, ElicitationAnswer> {
        Box::pin(async move {
            match ElicitationForm::of(&request) {
                Ok(form) => ask(server, &form, &mut question::turn().await).await,
                Err(reason) => {
                    terminal::warn(&format!(
                        "haft declined an elicitation request from MCP server `{server}`: {reason}"
                    ));
                    ElicitationAnswer::Declined
                }
            }
        })
    }
}

async fn ask(server: &str, form: &ElicitationForm, turn: &mut QuestionTurn) -> ElicitationAnswer {
    terminal::prompt(&format!("MCP server `{server}` asks: {}\n{}", form.message, form.how_to_answer()));
    turn.settle().await;
    if form.fields.is_empty() {
        return agreed(turn).await;
    }
    let mut answers = Map::new();
    for field in &form.fields {
        match answer(field, turn).await {
            Ok(Some(value)) => drop(answers.insert(field.name.clone(), value)),
            Ok(None) => {}
            Err(refusal) => return refusal,
        }
    }
    ElicitationAnswer::Accepted(Value::Object(answers))
}

/// Asks the user to agree or decline, for a form without fields. An empty line declines.
async fn agreed(turn: &mut QuestionTurn) -> ElicitationAnswer {
    match answer(&FormField::agreement(), turn).await {
        Ok(Some(Value::Bool(true))) => ElicitationAnswer::Accepted(Value::Object(Map::new())),
        Ok(Some(_) | None) => ElicitationAnswer::Declined,
        Err(refusal) => refusal,
    }
}

/// Asks for one field. Returns `None` if the user leaves out the field; an error ends the whole request.
async fn answer(field: &FormField, turn: &mut QuestionTurn) -> Result<Option<Value>, ElicitationAnswer> {
    for _ in 0..ATTEMPTS_MAX {
        terminal::prompt(&field.question());
        let Some(line) = turn.line().await else { return Err(ElicitationAnswer::Cancelled) };
        match field.read(line.trim()) {
            Ok(FormFieldInput::Value(value)) => return Ok(Some(value)),
            Ok(FormFieldInput::LeftOut) => return Ok(None),
            Ok(FormFieldInput::No) => return Err(ElicitationAnswer::Declined),
            Err(complaint) => terminal::prompt(&complaint),
        }
    }
    Err(ElicitationAnswer::Cancelled)
}
