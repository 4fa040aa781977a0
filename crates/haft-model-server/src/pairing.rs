//! Calls and their answers: providers refuse a conversation in which they do not pair.

/// The calls that still want an answer.
#[derive(Debug, Default)]
pub(crate) struct Pairing {
    open: Vec<String>,
    known: Vec<String>,
    strangers: Strangers,
}

/// Answers to calls that are not listed.
#[derive(Clone, Copy, Debug, Default)]
enum Strangers {
    #[default]
    Refused,
    Welcome,
}

impl Pairing {
    /// For a request that goes on from a stored answer: its calls stand there.
    pub(crate) fn after_a_stored_answer() -> Self {
        Self { strangers: Strangers::Welcome, ..Self::default() }
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
            (None, Strangers::Welcome) => Ok(()),
            (None, Strangers::Refused) if self.known.iter().any(|known| known == id) => {
                Err(format!("a second tool result for `{id}`"))
            }
            (None, Strangers::Refused) => Err(format!("a tool result for `{id}`, but no such call")),
        }
    }

    pub(crate) fn all_answered(&self) -> Result<(), String> {
        match self.open.as_slice() {
            [] => Ok(()),
            open => Err(format!("these calls have no tool result: {}", open.join(", "))),
        }
    }
}
