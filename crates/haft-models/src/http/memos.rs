//! What was encoded for conversations that may go on.

use std::sync::{Mutex, PoisonError};

use haft_core::conversation::Conversation;

use crate::memo::Memo;

/// How many conversations are remembered; the one that was quiet longest is forgotten first.
const MEMOS_MAX: usize = 32;

/// How much all of them together may hold.
const MEMOS_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Memos of one endpoint, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Memos(Mutex<Vec<Memo>>);

impl Memos {
    /// The memo that knows most of a conversation, or an empty one. It is taken out, so nobody waits while it is used.
    pub(crate) fn take(&self, conversation: &Conversation) -> Memo {
        let mut memos = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = memos.iter().enumerate().filter_map(|(at, memo)| Some((memo.knows(conversation)?, at)));
        known.max().map(|(_, at)| memos.remove(at)).unwrap_or_default()
    }

    pub(crate) fn put(&self, memo: Memo) {
        let mut memos = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memos.push(memo);
        while memos.len() > MEMOS_MAX || memos.iter().map(Memo::bytes).sum::<usize>() > MEMOS_BYTES_MAX {
            memos.remove(0);
        }
    }
}
