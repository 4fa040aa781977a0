//! What a command printed: the beginning for the model, and all of it for the store when that is not all.

use std::borrow::Cow;

use haft_core::store::{OutputStore, Spool, StoreError, Stored};
use haft_core::text::CappedText;

/// Keeps the beginning in memory; once there is more than that, everything goes to the store as it comes.
pub(super) struct Transcript<'a> {
    shown: CappedText,
    chars_max: usize,
    store: Option<&'a dyn OutputStore>,
    /// The bytes so far, while they may still turn out to be all.
    head: Vec<u8>,
    spool: Option<Box<dyn Spool>>,
}

impl<'a> Transcript<'a> {
    pub(super) fn new(chars_max: usize, store: Option<&'a dyn OutputStore>) -> Self {
        Self { shown: CappedText::new(chars_max), chars_max, store, head: Vec::new(), spool: None }
    }

    pub(super) fn push<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, str> {
        // A store that fails costs what is not shown, never the call.
        if self.keep(bytes).is_err() {
            self.store = None;
            self.spool = None;
        }
        self.shown.push(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// What the model is shown, and where the whole is when that is more.
    pub(super) fn finish(self) -> (String, Option<Stored>) {
        // With characters of several bytes all may be shown although the spool was begun.
        let stored = self.spool.filter(|_| self.shown.is_cut()).and_then(|spool| spool.finish().ok());
        let text = self.shown.finish();
        match stored {
            Some(stored) => (format!("{text}\n{}", stored.how_to_ask()), Some(stored)),
            None => (text, None),
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(store) = self.store else { return Ok(()) };
        if let Some(spool) = &mut self.spool {
            return spool.write(bytes);
        }
        // A character has at least one byte: as long as there are fewer bytes, all of it is shown.
        if self.head.len() + bytes.len() <= self.chars_max {
            self.head.extend_from_slice(bytes);
            return Ok(());
        }
        let mut spool = store.begin()?;
        spool.write(&std::mem::take(&mut self.head))?;
        spool.write(bytes)?;
        self.spool = Some(spool);
        Ok(())
    }
}
