//! Matches tool calls with their results. Providers reject a conversation in which calls and results do not match.

/// The calls that have no result yet.
#[derive(Debug, Default)]
pub(crate) struct CallPairing {
    open: Vec<String>,
    known: Vec<String>,
    strangers: UnknownResults,
}

/// The handling of results for calls that are not in the request.
#[derive(Clone, Copy, Debug, Default)]
enum UnknownResults {
    #[default]
    Refused,
    Welcome,
}

impl CallPairing {
    /// Creates the pairing for a request that continues a stored response, which contains the calls.
    pub(crate) fn after_stored_response() -> Self {
        Self { strangers: UnknownResults::Welcome, ..Self::default() }
    }

    pub(crate) fn called(&mut self, id: &str) -> Result<(), String> {
        if id.is_empty() {
            return Err("a call has no id".to_owned());
        }
        if self.open.iter().any(|open| open == id) {
            return Err(format!("two calls of one turn have the id `{id}`"));
        }
        self.open.push(id.to_owned());
        self.known.push(id.to_owned());
        Ok(())
    }

    pub(crate) fn answered(&mut self, id: &str) -> Result<(), String> {
        let at = self.open.iter().position(|open| open == id);
        match (at, self.strangers) {
            (Some(at), _) => {
                self.open.remove(at);
                Ok(())
            }
            (None, UnknownResults::Welcome) => Ok(()),
            (None, UnknownResults::Refused) if self.known.iter().any(|known| known == id) => {
                Err(format!("the call `{id}` has a second tool result"))
            }
            (None, UnknownResults::Refused) => {
                Err(format!("a tool result names the call `{id}`, which does not exist"))
            }
        }
    }

    pub(crate) fn all_answered(&self) -> Result<(), String> {
        match self.open.as_slice() {
            [] => Ok(()),
            open => Err(format!("these calls have no tool result: {}", open.join(", "))),
        }
    }
}
