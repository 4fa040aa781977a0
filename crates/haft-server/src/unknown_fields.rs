//! Warns the operator about request fields that this version does not know.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use crate::operator_log::OperatorLog;

/// The maximum number of field names that the operator is warned about. Clients choose the names.
const NAMES_MAX: usize = 100;

/// The maximum length of a name in a warning, in characters.
const NAME_CHARS_MAX: usize = 64;

/// The unknown fields that clients have sent so far.
#[derive(Debug)]
pub(crate) struct UnknownFields {
    log: OperatorLog,
    warned: Mutex<BTreeSet<String>>,
}

impl UnknownFields {
    pub(crate) fn new(log: OperatorLog) -> Self {
        Self { log, warned: Mutex::default() }
    }

    /// Warns about the names that no earlier request had.
    pub(crate) fn note(&self, names: &[String]) {
        for name in names.iter().filter_map(|name| self.first_time(name)) {
            self.log.warn(&format!(
                "a request has the field `{name}`, which this version does not know and ignores"
            ));
        }
    }

    /// Returns the shortened name if it is new and the maximum number of names is not reached.
    fn first_time(&self, name: &str) -> Option<String> {
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = warned.len() < NAMES_MAX && warned.insert(name.clone());
        is_new.then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_unknown_field_is_warned_about_once_up_to_a_limit() {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&warnings);
        let fields = UnknownFields::new(OperatorLog::new(move |message| {
            written.lock().unwrap().push(message.to_owned());
        }));
        let long = "x".repeat(1000);
        fields.note(&["shiny".into(), "shiny".into(), long.clone()]);
        fields.note(&["shiny".into(), long]);
        let expected = |name: &str| {
            format!("a request has the field `{name}`, which this version does not know and ignores")
        };
        assert_eq!(*warnings.lock().unwrap(), [expected("shiny"), expected(&"x".repeat(NAME_CHARS_MAX))]);
        for number in 0..2 * NAMES_MAX {
            fields.note(&[format!("field_{number}")]);
        }
        assert_eq!(warnings.lock().unwrap().len(), NAMES_MAX);
    }
}
