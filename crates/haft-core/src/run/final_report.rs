//! Detects the answer of a run: the last text, a call of the report tool, or a tag in the text.

use std::sync::Arc;

use crate::internal_tools::final_report::{ReportShape, RunReport};
use crate::internal_tools::report_format::ReportFormat;
use crate::model_reply::StopReason;
use crate::model_request::OutputShape;

/// The form in which the model returns its answer.
#[derive(Debug, Clone)]
pub enum FinalReport {
    /// The last text is the answer.
    None,
    /// The last text of the model is the answer, and must have this shape.
    Text(ReportShape),
    /// The model calls the report tool with an answer of this shape.
    Tool(ReportShape),
    /// The model writes the answer between `<haft-NONCE-FINAL format="…">` and its closing tag. This is for models that
    /// are better at writing text than at calling tools.
    Xml {
        /// The required format and schema.
        shape: ReportShape,
        /// A text that is unique to this session, so that text from another source cannot imitate a report.
        nonce: String,
    },
}

/// The result of the search for a report in a text.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReportSearch {
    Report(RunReport),
    /// The content of the tag is invalid. The message is for the model.
    Invalid(String),
    /// The tag is open, because a limit ended the reply early.
    Cut,
    Nothing,
}

impl FinalReport {
    /// Returns the required format and schema, or `None` if the last text is the answer.
    pub fn shape(&self) -> Option<&ReportShape> {
        match self {
            Self::None => None,
            Self::Text(shape) | Self::Tool(shape) | Self::Xml { shape, .. } => Some(shape),
        }
    }

    /// Returns true if programs read the answer, so that an answer in any other format must be rejected.
    pub fn is_structured(&self) -> bool {
        self.shape().is_some_and(|shape| shape.format().is_structured())
    }

    /// Returns the format that a provider can enforce for the answer. Providers accept only object schemas.
    pub(super) fn output_shape(&self) -> OutputShape {
        match self {
            Self::None | Self::Tool(_) | Self::Xml { .. } => OutputShape::Text,
            Self::Text(shape) => match (shape.format(), shape.schema()) {
                (ReportFormat::Json, None) => OutputShape::Json,
                (ReportFormat::Json, Some(schema))
                    if schema.get("type").is_none_or(|kind| kind == "object") =>
                {
                    OutputShape::Schema { name: "answer".into(), schema: Arc::clone(schema) }
                }
                _ => OutputShape::Text,
            },
        }
    }

    /// Returns the instruction in the system text about how to end the run.
    pub fn rule(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(shape) => {
                let schema =
                    shape.schema().map(|schema| format!(" The schema is: {schema}")).unwrap_or_default();
                format!("When you are done, answer with nothing but this. {}{schema}", shape.format().rule())
            }
            Self::Tool(shape) => format!(
                "When you are done, call `{}` with format `{}`. {}",
                crate::internal_tools::final_report::FINAL_REPORT,
                shape.format().name(),
                shape.format().rule()
            ),
            Self::Xml { shape, nonce } => {
                let name = shape.format().name();
                let schema =
                    shape.schema().map(|schema| format!(" The schema is: {schema}")).unwrap_or_default();
                format!(
                    "When you are done, write your final answer between <haft-{nonce}-FINAL format=\"{name}\"> and \
                     </haft-{nonce}-FINAL>, and call no tool in the same reply. {}{schema}",
                    shape.format().rule()
                )
            }
        }
    }

    /// Returns the instruction for the last turn.
    pub(super) fn final_instruction(&self) -> String {
        match self {
            Self::None => "Call no more tools. Answer now with what you have.".into(),
            Self::Text(_) => format!("Call no more tools. Answer now with what you have. {}", self.rule()),
            Self::Tool(_) => {
                format!("Call `{}` now, and nothing else.", crate::internal_tools::final_report::FINAL_REPORT)
            }
            Self::Xml { nonce, .. } => {
                format!("Call no more tools. Write your final answer in <haft-{nonce}-FINAL …> now.")
            }
        }
    }
}

/// Searches a text for the tag. Accepts an unclosed tag if the model itself stopped. Rejects a tag that a limit cut
/// off, and an unclosed structured report with incomplete content, so that the run asks again.
pub(super) fn find(shape: &ReportShape, nonce: &str, text: &str, stop: &StopReason) -> ReportSearch {
    let open = format!("<haft-{nonce}-FINAL");
    // Use the last tag, because a model may mention the tag before it writes the report.
    let Some((_, after)) = text.rsplit_once(&open) else { return ReportSearch::Nothing };
    let Some((attributes, body)) = after.split_once('>') else { return ReportSearch::Cut };
    let body = match body.split_once(&format!("</haft-{nonce}-FINAL")) {
        Some((body, _)) => body,
        None if was_cut(stop) => return ReportSearch::Cut,
        None => body,
    };
    match shape.read_text(attribute(attributes, "format"), body) {
        Ok(report) => ReportSearch::Report(report),
        Err(problem) => ReportSearch::Invalid(problem),
    }
}

fn was_cut(stop: &StopReason) -> bool {
    match stop {
        StopReason::Length | StopReason::CutOff | StopReason::Filtered | StopReason::Paused => true,
        StopReason::EndOfTurn
        | StopReason::ToolCalls
        | StopReason::StopSequence
        | StopReason::Refusal
        | StopReason::Other(_) => false,
    }
}

fn attribute<'t>(attributes: &'t str, name: &str) -> Option<&'t str> {
    let (_, after) = attributes.split_once(name)?;
    let value = after.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|c| "\"'".contains(*c))?;
    value[1..].split_once(quote).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: ReportFormat, text: &str, stop: &StopReason, expected: Result<&str, &str>) {
        let found = match find(&ReportShape::plain(format), "ab12", text, stop) {
            ReportSearch::Report(report) => Ok(report.content.as_text()),
            ReportSearch::Invalid(problem) => Err(problem),
            ReportSearch::Cut => Err("CUT".into()),
            ReportSearch::Nothing => Err("NOTHING".into()),
        };
        match (&found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(found), Err(part)) => assert!(found.contains(part), "{text}: {found}"),
            _ => panic!("{text}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn report_is_extracted_from_its_tags() {
        let end = &StopReason::EndOfTurn;
        let text = ReportFormat::Text;
        check(
            text,
            r#"So: <haft-ab12-FINAL format="text">it is red</haft-ab12-FINAL> bye"#,
            end,
            Ok("it is red"),
        );
        check(text, "<haft-ab12-FINAL format='text'>\nred\n", end, Ok("red"));
        check(text, "<haft-ab12-FINAL>red", end, Ok("red"));
        check(text, "I will write <haft-ab12-FINAL …>. <haft-ab12-FINAL format=\"text\">a", end, Ok("a"));
        check(text, r#"<haft-ab12-FINAL format="json">1"#, end, Err("`format` must be `text`"));
        check(text, "<haft-ab12-FINAL>  </haft-ab12-FINAL>", end, Err("empty"));
        check(text, "<haft-ab12-FINAL", end, Err("CUT"));
    }

    #[test]
    fn tag_with_another_nonce_is_not_a_report() {
        check(
            ReportFormat::Text,
            "<haft-0000-FINAL>x</haft-0000-FINAL>",
            &StopReason::EndOfTurn,
            Err("NOTHING"),
        );
        check(ReportFormat::Text, "no tag", &StopReason::Length, Err("NOTHING"));
    }

    #[test]
    fn report_truncated_by_the_length_limit_is_detected_as_cut_off() {
        let json = ReportFormat::Json;
        check(ReportFormat::Text, "<haft-ab12-FINAL>half a sen", &StopReason::Length, Err("CUT"));
        check(
            ReportFormat::Text,
            "<haft-ab12-FINAL>whole</haft-ab12-FINAL>",
            &StopReason::Length,
            Ok("whole"),
        );
        check(json, r#"<haft-ab12-FINAL format="json">{"a": 1}"#, &StopReason::EndOfTurn, Ok(r#"{"a":1}"#));
        check(json, r#"<haft-ab12-FINAL format="json">{"a": "#, &StopReason::EndOfTurn, Err("not JSON"));
    }

    #[test]
    fn each_report_mode_tells_the_model_how_to_finish() {
        let shape = ReportShape::plain(ReportFormat::Markdown);
        assert_eq!(FinalReport::None.rule(), "");
        assert!(FinalReport::Tool(shape.clone()).rule().contains("agent__final_report"));
        let xml = FinalReport::Xml { shape, nonce: "ab12".into() };
        assert!(xml.rule().contains(r#"<haft-ab12-FINAL format="markdown">"#));
        assert!(xml.final_instruction().contains("haft-ab12-FINAL"));
    }
}
