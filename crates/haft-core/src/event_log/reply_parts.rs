//! The parts of an unfinished reply: converts the events of a reply to events of the log.

use super::{LogCitation, LogEvent};
use crate::conversation::UrlCitation;
use crate::model_event::{ModelEvent, PartDelta, PartStart};

/// The maximum number of citations of one text. Further citations are dropped.
const CITATIONS_PER_PART_MAX: usize = 1_000;

/// The parts of a reply that have arrived so far.
#[derive(Debug, Default)]
pub(super) struct ReplyParts {
    parts: Vec<ReplyPart>,
    /// The length of all text so far, in characters.
    text_chars: u64,
    /// The number of summary paragraphs so far.
    summary_parts: u32,
}

/// A part of the reply.
#[derive(Debug)]
struct ReplyPart {
    kind: PartKind,
    is_finished: bool,
    /// The position of the part's first character in the text of the reply. It is unknown before the first delta.
    start: Option<u64>,
    /// The length of the part's text so far, in characters.
    chars: u64,
    /// The citations of an unfinished text. A citation of the whole text has no end before the text ends.
    citations: Vec<UrlCitation>,
    /// The number of the summary paragraph that is arriving.
    summary_part: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartKind {
    Text,
    Refusal,
    Reasoning,
    Other,
}

impl ReplyParts {
    /// Converts the next event of the reply. Returns `None` for an event that is not part of the log.
    pub(super) fn read(&mut self, event: &ModelEvent) -> Option<LogEvent> {
        match event {
            ModelEvent::Started { .. } => *self = Self::default(),
            ModelEvent::PartStarted { part, .. } => self.parts.push(ReplyPart::new(part)),
            ModelEvent::PartDelta { index, delta } => return self.delta(*index, delta),
            ModelEvent::PartFinished { index, .. } => return self.finish(*index),
            ModelEvent::Usage(_) | ModelEvent::Noted(_) | ModelEvent::Finished { .. } => {}
        }
        None
    }

    fn delta(&mut self, index: usize, delta: &PartDelta) -> Option<LogEvent> {
        let Self { parts, text_chars, summary_parts } = self;
        let part = parts.get_mut(index)?;
        match (part.kind, delta) {
            (PartKind::Text, PartDelta::Text(text)) => {
                let chars = text.chars().count() as u64;
                part.start.get_or_insert(*text_chars);
                part.chars += chars;
                *text_chars += chars;
                Some(LogEvent::TextDelta { text: text.clone() })
            }
            (PartKind::Refusal, PartDelta::Text(text)) => Some(LogEvent::RefusalDelta { text: text.clone() }),
            (PartKind::Reasoning, PartDelta::Text(text)) => {
                Some(LogEvent::ReasoningDelta { text: text.clone() })
            }
            (PartKind::Reasoning, PartDelta::Summary(text)) => {
                let number = *part.summary_part.get_or_insert_with(|| {
                    *summary_parts += 1;
                    *summary_parts - 1
                });
                Some(LogEvent::ReasoningSummaryDelta { part: number, text: text.clone() })
            }
            (PartKind::Reasoning, PartDelta::SummaryBreak) => {
                part.summary_part = None;
                None
            }
            (PartKind::Text, PartDelta::Annotation(annotation)) => part.cite(&annotation.citations),
            (PartKind::Other, _)
            | (_, PartDelta::Annotation(_) | PartDelta::Summary(_) | PartDelta::SummaryBreak) => None,
        }
    }

    fn finish(&mut self, index: usize) -> Option<LogEvent> {
        let part = self.parts.get_mut(index)?;
        part.is_finished = true;
        let citations = std::mem::take(&mut part.citations);
        part.located(&citations)
    }
}

impl ReplyPart {
    fn new(start: &PartStart) -> Self {
        Self {
            kind: PartKind::of(start),
            is_finished: false,
            start: None,
            chars: 0,
            citations: Vec::new(),
            summary_part: None,
        }
    }

    /// Keeps citations until the text ends. Returns them at once if the text has ended: some providers send all
    /// citations at the end of the reply.
    fn cite(&mut self, citations: &[UrlCitation]) -> Option<LogEvent> {
        if self.is_finished {
            return self.located(citations);
        }
        let room = CITATIONS_PER_PART_MAX - self.citations.len();
        self.citations.extend(citations.iter().take(room).cloned());
        None
    }

    /// Converts citations, with their positions in the text of the whole reply.
    fn located(&self, citations: &[UrlCitation]) -> Option<LogEvent> {
        let citations = citations.iter().take(CITATIONS_PER_PART_MAX).map(|citation| self.locate(citation));
        let citations: Vec<LogCitation> = citations.collect();
        (!citations.is_empty()).then_some(LogEvent::Citations { citations })
    }

    fn locate(&self, citation: &UrlCitation) -> LogCitation {
        let UrlCitation { url, title, range } = citation;
        let range = range.clone().unwrap_or(0..self.chars);
        let end = range.end.min(self.chars);
        let first = self.start.unwrap_or_default();
        LogCitation {
            url: url.clone(),
            title: title.clone(),
            start: first + range.start.min(end),
            end: first + end,
        }
    }
}

impl PartKind {
    fn of(part: &PartStart) -> Self {
        match part {
            PartStart::Text => Self::Text,
            PartStart::Refusal => Self::Refusal,
            PartStart::Reasoning => Self::Reasoning,
            PartStart::Call { .. }
            | PartStart::Image(_)
            | PartStart::Audio(_)
            | PartStart::File { .. }
            | PartStart::Opaque => Self::Other,
        }
    }
}
