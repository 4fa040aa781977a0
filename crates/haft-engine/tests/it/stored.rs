use std::sync::{Arc, Mutex};

use haft_core::store::{Handle, OutputStore, Spool, StoreError, Stored};
use haft_core::tool::OutputPolicy;
use haft_engine::RunContext;

use crate::fake::{Rig, call, config, orchestrator_for, said};

const NAME: &str = "0a1b2c3d-0000-4000-8000-000000000000";

/// Keeps what it is given, or fails as a full disk would.
#[derive(Clone, Default)]
pub(crate) struct Shelf {
    pub(crate) kept: Arc<Mutex<Vec<u8>>>,
    full: bool,
}

impl OutputStore for Shelf {
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        if self.full {
            return Err(StoreError::Unavailable { reason: "no space left on device".into() });
        }
        Ok(Box::new(self.clone()))
    }

    fn read(&self, _: &Handle) -> Result<Vec<u8>, StoreError> {
        Ok(self.kept.lock().unwrap().clone())
    }

    fn is_empty(&self) -> bool {
        self.kept.lock().unwrap().is_empty()
    }
}

impl Spool for Shelf {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.kept.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Stored, StoreError> {
        let bytes = self.kept.lock().unwrap().len() as u64;
        Ok(Stored { handle: Handle::new(NAME, NAME).unwrap(), bytes, lines: 0, complete: true })
    }
}

/// A run with this store.
fn run(store: Option<Shelf>) -> RunContext {
    let outputs = store.map(|shelf| Arc::new(shelf) as Arc<dyn OutputStore>);
    RunContext { outputs, ..RunContext::default() }
}

fn storing(store: Option<Shelf>, bytes_max: usize) -> Rig {
    orchestrator_for(run(store), config(|policy| policy.output = OutputPolicy::Store { bytes_max })).0
}

#[tokio::test]
async fn what_is_too_large_is_stored_and_the_model_is_told_how_to_ask() {
    let shelf = Shelf::default();
    let orchestrator = storing(Some(shelf.clone()), 11);
    let result = orchestrator.execute(call("echo", r#"{"text": "too much to say"}"#)).await;
    assert_eq!(shelf.kept.lock().unwrap().as_slice(), b"echo: too much to say");
    let text = said(&result);
    assert!(text.contains("size_cap") && text.contains(&format!("session-{NAME}/{NAME}")), "{text}");
    assert!(text.ends_with("echo: too much to say"), "the beginning is shown: {text}");
    assert!(result.receipt.notes.contains_key("stored"));
}

#[tokio::test]
async fn what_fits_is_shown_as_it_is() {
    let shelf = Shelf::default();
    let orchestrator = storing(Some(shelf.clone()), 11);
    assert_eq!(said(&orchestrator.execute(call("echo", r#"{"text": "short"}"#)).await), "echo: short");
    assert!(shelf.kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_store_that_fails_costs_the_end_of_the_output_and_nothing_else() {
    for shelf in [Some(Shelf { full: true, ..Shelf::default() }), None] {
        let orchestrator = storing(shelf, 11);
        let result = orchestrator.execute(call("echo", r#"{"text": "too much"}"#)).await;
        assert_eq!(
            said(&result),
            "echo: \n... (output truncated: 14 total chars, showing first 6 and last 5)\n much"
        );
    }
}

#[tokio::test]
async fn pictures_that_are_too_large_and_bytes_are_stored_and_described() {
    let shelf = Shelf::default();
    let orchestrator = storing(Some(shelf.clone()), 12_288);
    let result = orchestrator.execute(call("picture", "{}")).await;
    let text = said(&result);
    assert!(text.starts_with("pictures\n[image: image/gif, 5x7 pixels, 11 bytes]\n[image: image/gif, 5x7 pixels, 6291466 bytes, sha256 "), "{text}");
    assert!(text.contains("\n[binary: application/octet-stream, 5 bytes, sha256 "), "{text}");
    assert_eq!(shelf.kept.lock().unwrap().len(), 6_291_466 + 5, "all of the bytes are there");
    assert!(!text.contains('\0'), "nothing is dumped");
    assert_eq!(result.receipt.notes["stored"].as_array().unwrap().len(), 2);
    let orchestrator = storing(None, 12_288);
    let text = said(&orchestrator.execute(call("picture", "{}")).await);
    assert!(text.contains("left out: images and audio may take 5242880 bytes in all"), "{text}");
    assert!(text.contains("left out: it is not text, and it could not be stored"), "{text}");
}

#[tokio::test]
async fn text_beside_pictures_is_stored_and_the_pictures_keep_their_handles() {
    let shelf = Shelf::default();
    let orchestrator = storing(Some(shelf.clone()), 5);
    let result = orchestrator.execute(call("picture", "{}")).await;
    let text = said(&result);
    assert!(
        text.starts_with("Tool output is too large (") && text.contains("It begins:\npictures\n"),
        "{text}"
    );
    assert!(
        text.contains("[image: image/gif, 5x7 pixels, 11 bytes]"),
        "what is small is still carried: {text}"
    );
    assert_eq!(text.matches(", sha256 ").count(), 2, "{text}");
    assert_eq!(result.receipt.notes["stored"].as_array().unwrap().len(), 3);
}
