//! Writes the text of a model to standard output as it arrives.

use std::io::{self, IsTerminal, Write};

use haft_core::text::is_bidi_control;

use super::markdown::MarkdownRenderer;
use super::terminal;

/// The changes that the writer makes to text before it writes the text.
#[derive(Debug)]
enum TextTreatment {
    /// The text is written unchanged, because a program reads it.
    Raw,
    /// The text is for a terminal without colours. Markdown markers are kept, because without colours the text is most
    /// readable with its markers.
    Harmless,
    /// The text has its own colours. Only bidirectional controls are removed.
    Coloured,
    /// The text has its own colours, but the terminal shows none. All escape codes are removed.
    Uncoloured,
    Styled(MarkdownRenderer),
}

/// A writer for one answer.
#[derive(Debug)]
pub(super) struct AnswerWriter {
    look: TextTreatment,
    /// True if the last character was a newline; `None` before the first character.
    ends_line: Option<bool>,
}

/// Creates a writer that renders Markdown.
impl Default for AnswerWriter {
    fn default() -> Self {
        let styled = || TextTreatment::Styled(MarkdownRenderer::new(terminal::answer_columns()));
        Self::on_terminal(TextTreatment::Harmless, styled)
    }
}

impl AnswerWriter {
    /// Creates a writer for text that is not Markdown.
    pub(super) fn plain() -> Self {
        Self::on_terminal(TextTreatment::Harmless, || TextTreatment::Harmless)
    }

    /// Creates a writer for text that has its own colours. The caller must have removed all other escape codes.
    pub(super) fn coloured() -> Self {
        Self::on_terminal(TextTreatment::Uncoloured, || TextTreatment::Coloured)
    }

    /// Selects the treatment for a terminal. If standard output is not a terminal, text is written unchanged.
    fn on_terminal(without_colours: TextTreatment, with_colours: impl FnOnce() -> TextTreatment) -> Self {
        let out = io::stdout();
        let wants_colours = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
        let look = match (out.is_terminal(), wants_colours) {
            (false, _) => TextTreatment::Raw,
            (true, false) => without_colours,
            (true, true) => with_colours(),
        };
        Self { look, ends_line: None }
    }

    /// Writes text. On a terminal, removes the escape codes that a model wrote, so that it cannot control the terminal.
    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.ends_line = Some(text.ends_with('\n'));
        match &mut self.look {
            TextTreatment::Raw => put(text),
            TextTreatment::Harmless => put(&terminal::harmless(text)),
            TextTreatment::Coloured => put(&text.replace(is_bidi_control, "")),
            TextTreatment::Uncoloured => {
                put(&anstream::adapter::strip_str(text).to_string().replace(is_bidi_control, ""))
            }
            TextTreatment::Styled(markdown) => put(&markdown.push(&terminal::harmless(text))),
        }
    }

    /// Returns true if the last line is not complete.
    pub(super) fn is_mid_line(&self) -> bool {
        self.ends_line == Some(false)
    }

    /// Ends the answer: writes the text that was held back, and ends the line.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let held = match &mut self.look {
            TextTreatment::Raw
            | TextTreatment::Harmless
            | TextTreatment::Coloured
            | TextTreatment::Uncoloured => String::new(),
            TextTreatment::Styled(markdown) => markdown.finish(),
        };
        let newline = if self.ends_line.take() == Some(false) { "\n" } else { "" };
        put(&format!("{held}{newline}"))
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
