//! Limits the output of a tool: shows its beginning, and stores the whole output if it is longer.

use std::borrow::Cow;

use haft_core::output::{OutputContent, ToolOutput};
use haft_core::output_store::{
    OutputPreview, OutputStore, Spool, StoreEntry, StoreError, StoreReason, StoredOutput,
};
use haft_core::provider::CallContext;
use haft_core::text::CappedText;
use haft_core::tokens::Tokens;
use serde_json::json;

/// Keeps the beginning of the output in memory. Once the output may be too long to show in full, all bytes also go to
/// the store.
pub(super) struct LimitedOutput<'a> {
    shown: CappedText,
    chars_max: usize,
    keeping: OutputDestination<'a>,
}

/// The destination of the whole output.
enum OutputDestination<'a> {
    /// haft drops the output that it does not show, because there is no store.
    No,
    /// The store, and the bytes so far. haft begins to write to the store when the output may be too long to show in
    /// full.
    Head(&'a dyn OutputStore, Vec<u8>),
    Spool(Box<dyn Spool>),
    /// The store failed. The part of the output that is not shown is lost, but the call succeeds.
    Failed(StoreError),
}

impl<'a> LimitedOutput<'a> {
    pub(super) fn new(chars_max: usize, store: Option<&'a dyn OutputStore>) -> Self {
        let keeping = store.map_or(OutputDestination::No, |store| OutputDestination::Head(store, Vec::new()));
        Self { shown: CappedText::new(chars_max), chars_max, keeping }
    }

    pub(super) fn push<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, str> {
        let keeping = std::mem::replace(&mut self.keeping, OutputDestination::No);
        self.keeping = keeping.push(bytes, self.chars_max).unwrap_or_else(OutputDestination::Failed);
        self.shown.push(bytes)
    }

    /// Counts characters of the output that the caller read after the last `push` and did not keep.
    pub(super) fn push_unseen(&mut self, chars: usize) {
        self.shown.push_unseen(chars);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// Returns the shown text, with the handle of the stored output if text was cut. The receipt records the handle
    /// too.
    pub(super) fn finish(self, cx: &CallContext) -> ToolOutput {
        // haft starts to store after a number of bytes, but the limit of the shown text counts characters. An output
        // with multi-byte characters may therefore be stored and still be shown in full.
        let stored = if self.shown.is_cut() { self.keeping.finish() } else { Ok(None) };
        let unseen = self.shown.unseen_chars();
        let mut output = ToolOutput::text(self.shown.finish());
        match stored {
            Ok(None) => {}
            Ok(Some(stored)) => {
                let stored = beside(StoreEntry { complete: stored.complete && unseen == 0, ..stored });
                cx.note("stored", stored.noted());
                output.content.push(OutputContent::Stored(Box::new(stored)));
            }
            Err(error) => cx.note("store", json!(error.to_string())),
        }
        output
    }
}

/// Describes a stored output whose beginning the model already gets as text.
fn beside(stored: StoreEntry) -> StoredOutput {
    let glimpse = OutputPreview::Shown { tokens: Tokens::by_length(stored.bytes) };
    StoredOutput { stored, reason: StoreReason::SizeCap, glimpse }
}

impl OutputDestination<'_> {
    fn push(self, bytes: &[u8], chars_max: usize) -> Result<Self, StoreError> {
        match self {
            // A character has at least one byte, so an output of up to `chars_max` bytes is shown in full.
            OutputDestination::Head(store, mut head) if head.len() + bytes.len() <= chars_max => {
                head.extend_from_slice(bytes);
                Ok(OutputDestination::Head(store, head))
            }
            OutputDestination::Head(store, head) => {
                let mut spool = store.begin()?;
                spool.write(&head)?;
                spool.write(bytes)?;
                Ok(OutputDestination::Spool(spool))
            }
            OutputDestination::Spool(mut spool) => {
                spool.write(bytes).map(|()| OutputDestination::Spool(spool))
            }
            OutputDestination::No | OutputDestination::Failed(_) => Ok(self),
        }
    }

    fn finish(self) -> Result<Option<StoreEntry>, StoreError> {
        match self {
            OutputDestination::No | OutputDestination::Head(..) => Ok(None),
            OutputDestination::Spool(spool) => spool.finish().map(Some),
            OutputDestination::Failed(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use futures_util::future::BoxFuture;
    use haft_core::event::NoEvents;
    use haft_core::output_store::Handle;
    use haft_core::tool::CallId;

    use super::*;
    use haft_store::outputs::{FileStore, StoreLimits};

    fn context() -> CallContext {
        CallContext::new(CallId("1".into()), Arc::default(), None, Arc::new(NoEvents))
    }

    /// A store that accepts nothing, like a full disk.
    struct FullStore;

    impl OutputStore for FullStore {
        fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
            Err(StoreError::Unavailable { reason: "no space left".into() })
        }

        fn reopen(&self, _: &StoreEntry) -> Result<Box<dyn Spool>, StoreError> {
            self.begin()
        }

        fn read_range<'a>(
            &'a self,
            _: &'a Handle,
            _: Range<u64>,
        ) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
            Box::pin(async { Err(StoreError::NotFound) })
        }

        fn delete<'a>(&'a self, _: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>> {
            Box::pin(async { Err(StoreError::NotFound) })
        }

        fn is_empty(&self) -> bool {
            true
        }
    }

    const CUT: &str = "abcd\n... (output truncated: 9 total chars, showing first 4)";

    fn transcript<'a>(
        store: Option<&'a dyn OutputStore>,
        pieces: &[&str],
        unseen: usize,
    ) -> LimitedOutput<'a> {
        let mut transcript = LimitedOutput::new(4, store);
        for piece in pieces {
            transcript.push(piece.as_bytes());
        }
        transcript.push_unseen(unseen);
        transcript
    }

    #[test]
    fn output_over_the_limit_is_truncated_without_a_store() {
        let cx = context();
        assert_eq!(transcript(None, &["ab", "cdef", "ghi"], 0).finish(&cx).as_text(), CUT);
        assert_eq!(transcript(None, &["abcdef"], 3).finish(&cx).as_text(), CUT);
        assert_eq!(transcript(Some(&FullStore), &["abcd"], 0).finish(&cx).as_text(), "abcd");
        assert!(cx.take_notes().is_empty());
    }

    #[test]
    fn store_failure_truncates_the_output_and_is_recorded_in_the_receipt() {
        let cx = context();
        assert_eq!(transcript(Some(&FullStore), &["ab", "cdef", "ghi"], 0).finish(&cx).as_text(), CUT);
        assert_eq!(cx.take_notes()["store"], "the output store failed: no space left");
    }

    #[test]
    fn stored_output_is_marked_complete_only_if_it_has_all_characters() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), StoreLimits::default()).unwrap();
        let check = |pieces: &[&str], unseen: usize, bytes: u64, complete: bool| {
            let cx = context();
            let output = transcript(Some(&store), pieces, unseen).finish(&cx);
            let [OutputContent::Text(shown), OutputContent::Stored(kept)] = output.content.as_slice() else {
                panic!("{output:?}");
            };
            assert_eq!((shown.as_str(), kept.stored.bytes, kept.stored.complete), (CUT, bytes, complete));
            assert_eq!(cx.take_notes()["stored"]["complete"], complete);
        };
        check(&["ab", "cdef", "ghi"], 0, 9, true);
        check(&["abcdef"], 3, 6, false);
        let cx = context();
        assert_eq!(
            transcript(Some(&store), &["éé", "é"], 0).finish(&cx).as_text(),
            "ééé",
            "output within the limit is shown as a whole"
        );
        assert!(cx.take_notes().is_empty());
    }
}
