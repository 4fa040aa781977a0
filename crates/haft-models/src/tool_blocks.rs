//! Encoded tool lists that conversations share. Runs of the same agent send the same list, and each of them would
//! otherwise keep its own copy.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use haft_core::model_request::ModelTool;

/// The maximum number of tool lists that are compared with a new list. Each further list is encoded for its
/// conversation alone.
const LISTS_MAX: usize = 64;

/// The shown and the deferred tools in a request.
pub(crate) type ToolLists = [Arc<[ModelTool]>; 2];

/// A tool list and its encoded form.
#[derive(Debug)]
pub(crate) struct ToolBlock {
    /// The name of the encoder that wrote the bytes.
    writer: &'static str,
    lists: ToolLists,
    bytes: Box<[u8]>,
}

impl ToolBlock {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The tool lists that conversations currently use. Clones share the lists. A list is dropped with its last
/// conversation.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolBlocks(Arc<Mutex<Vec<Weak<ToolBlock>>>>);

impl ToolBlocks {
    /// Returns the encoded form of equal lists, or calls `encode`.
    pub(crate) fn get_or_encode(
        &self,
        writer: &'static str,
        lists: &ToolLists,
        encode: impl FnOnce() -> Vec<u8>,
    ) -> Arc<ToolBlock> {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_equal = |block: &Arc<ToolBlock>| block.writer == writer && block.lists == *lists;
        if let Some(block) = blocks.iter().filter_map(Weak::upgrade).find(is_equal) {
            return block;
        }
        blocks.retain(|block| block.strong_count() > 0);
        let block = Arc::new(ToolBlock { writer, lists: lists.clone(), bytes: encode().into() });
        if blocks.len() < LISTS_MAX {
            blocks.push(Arc::downgrade(&block));
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lists(names: &[&str]) -> ToolLists {
        let tool = |name: &&str| ModelTool {
            name: (*name).to_owned(),
            description: String::new(),
            input_schema: Arc::new(json!({ "type": "object" })),
            strict: false,
        };
        [names.iter().map(tool).collect(), Arc::default()]
    }

    #[test]
    fn equal_tool_lists_of_one_format_are_encoded_once() {
        let blocks = ToolBlocks::default();
        let encode = |writer: &'static str, names: &[&str]| {
            blocks.get_or_encode(writer, &lists(names), || names.concat().into_bytes())
        };
        let first = encode("chat", &["a", "b"]);
        assert!(Arc::ptr_eq(&first, &encode("chat", &["a", "b"])));
        assert!(!Arc::ptr_eq(&first, &encode("chat", &["b", "a"])), "lists in another order are not equal");
        assert!(!Arc::ptr_eq(&first, &encode("gemini", &["a", "b"])), "formats do not share encoded lists");
        assert_eq!(first.bytes(), b"ab");
    }

    #[test]
    fn full_tool_list_cache_still_encodes_and_drops_unused_lists() {
        let blocks = ToolBlocks::default();
        let encode = |name: &str| blocks.get_or_encode("chat", &lists(&[name]), || name.into());
        let held: Vec<_> = (0..LISTS_MAX).map(|number| encode(&number.to_string())).collect();
        assert_eq!(encode("further").bytes(), b"further");
        assert_eq!(blocks.0.lock().unwrap().len(), LISTS_MAX);
        drop(held);
        let _last = encode("further");
        assert_eq!(blocks.0.lock().unwrap().len(), 1);
    }
}
