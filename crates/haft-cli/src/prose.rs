//! Words of a model on their way to standard output, as soon as they are there.

use std::io::{self, IsTerminal, Write};

use super::markdown::Markdown;
use super::terminal;

/// How words look where they go.
#[derive(Debug)]
enum Look {
    /// As they were written: somebody's program reads them.
    Raw,
    /// A terminal that wants no colours: Markdown says most when its marks stay.
    Harmless,
    /// Words that bring colours of their own, and nothing else that a terminal would do.
    Uncoloured,
    Styled(Markdown),
}

/// An answer that is being written.
#[derive(Debug)]
pub(super) struct Prose {
    look: Look,
    /// Whether the last character was a newline; nothing before the first one.
    ends_line: Option<bool>,
}

/// Markdown.
impl Default for Prose {
    fn default() -> Self {
        Self::on_terminal(Look::Harmless, || Look::Styled(Markdown::default()))
    }
}

impl Prose {
    /// Words that mean nothing beside themselves.
    pub(super) fn plain() -> Self {
        Self::on_terminal(Look::Harmless, || Look::Harmless)
    }

    /// Words that bring colours of their own; whoever took them saw to it that there is nothing else in them.
    pub(super) fn coloured() -> Self {
        Self::on_terminal(Look::Uncoloured, || Look::Raw)
    }

    /// As they were written into anything but a terminal.
    fn on_terminal(without_colours: Look, with_colours: impl FnOnce() -> Look) -> Self {
        let out = io::stdout();
        let wants_colours = anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never;
        let look = match (out.is_terminal(), wants_colours) {
            (false, _) => Look::Raw,
            (true, false) => without_colours,
            (true, true) => with_colours(),
        };
        Self { look, ends_line: None }
    }

    /// What a model writes must not steer the terminal of the person who reads it.
    pub(super) fn write(&mut self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.ends_line = Some(text.ends_with('\n'));
        match &mut self.look {
            Look::Raw => put(text),
            Look::Harmless => put(&terminal::harmless(text)),
            Look::Uncoloured => put(&anstream::adapter::strip_str(text).to_string()),
            Look::Styled(markdown) => put(&markdown.push(&terminal::harmless(text))),
        }
    }

    /// Nothing more is said here: what was held back is shown, and the line is ended.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let held = match &mut self.look {
            Look::Raw | Look::Harmless | Look::Uncoloured => String::new(),
            Look::Styled(markdown) => markdown.finish(),
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
