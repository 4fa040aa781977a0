//! A cache for state that belongs to a conversation and is reused when the conversation continues.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use haft_core::conversation::Conversation;

/// The maximum number of conversations in the cache; the least recently used one is evicted first. All runs of a
/// provider share the cache. With more runs than entries, every turn would have to be encoded from the beginning.
const CONVERSATIONS_MAX: usize = 256;

/// The maximum size of all entries together, in bytes.
const BYTES_MAX: usize = 128 * 1024 * 1024;

/// State that belongs to one conversation and grows with it.
pub(crate) trait ConversationState: Default {
    /// Returns the number of messages that this state covers, or `None` if it belongs to another conversation.
    fn knows(&self, conversation: &Conversation) -> Option<usize>;

    /// Returns the size of the state, in bytes.
    fn bytes(&self) -> usize;
}

/// The states of the conversations that were used last.
#[derive(Debug, Default)]
pub(crate) struct ConversationCache<T>(Mutex<CachedStates<T>>);

#[derive(Debug)]
struct CachedStates<T> {
    /// Each state with its size in bytes, most recently used last.
    entries: VecDeque<(usize, T)>,
    /// The sum of the sizes of all states, in bytes.
    bytes: usize,
}

impl<T> Default for CachedStates<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }
}

impl<T: ConversationState> ConversationCache<T> {
    /// Removes and returns the entry that covers most of a conversation, or returns a new entry. Removing the entry
    /// means that no lock is held while the caller uses it.
    pub(crate) fn take(&self, conversation: &Conversation) -> T {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = cached.entries.iter().enumerate();
        let known = entries.filter_map(|(at, (_, state))| Some((state.knows(conversation)?, at)));
        let Some((bytes, state)) = known.max().and_then(|(_, at)| cached.entries.remove(at)) else {
            return T::default();
        };
        cached.bytes -= bytes;
        state
    }

    pub(crate) fn put(&self, state: T) {
        let bytes = state.bytes();
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.entries.push_back((bytes, state));
        cached.bytes += bytes;
        while cached.entries.len() > CONVERSATIONS_MAX || cached.bytes > BYTES_MAX {
            let Some((evicted, _)) = cached.entries.pop_front() else { return };
            cached.bytes -= evicted;
        }
    }
}

#[cfg(test)]
mod tests {
    use haft_core::conversation::Message;

    use super::*;

    /// A state that matches conversations by their length alone.
    #[derive(Debug, Default, PartialEq)]
    struct LengthState(usize);

    impl ConversationState for LengthState {
        fn knows(&self, conversation: &Conversation) -> Option<usize> {
            (self.0 > 0 && self.0 <= conversation.messages().len()).then_some(self.0)
        }

        fn bytes(&self) -> usize {
            self.0 * 1024 * 1024
        }
    }

    fn conversation(messages: usize) -> Conversation {
        let mut conversation = Conversation::default();
        for _ in 0..messages {
            conversation.push(Message::user("x")).unwrap();
        }
        conversation
    }

    #[test]
    fn conversation_cache_returns_the_longest_matching_state_once() {
        let kept = ConversationCache::default();
        for length in [1, 3, 2, 9] {
            kept.put(LengthState(length));
        }
        assert_eq!(kept.take(&conversation(4)), LengthState(3));
        assert_eq!(kept.take(&conversation(4)), LengthState(2));
        assert_eq!(kept.take(&conversation(0)), LengthState(0));
    }

    #[test]
    fn conversation_cache_evicts_the_oldest_state_over_its_byte_limit() {
        let kept = ConversationCache::default();
        for length in [60, 50, 40] {
            kept.put(LengthState(length));
        }
        assert_eq!(kept.take(&conversation(100)), LengthState(50));
        assert_eq!(kept.take(&conversation(100)), LengthState(40));
        assert_eq!(kept.take(&conversation(100)), LengthState(0));
    }
}
