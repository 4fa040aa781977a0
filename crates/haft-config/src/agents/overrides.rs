//! Overrides of keys in an agent file.

use serde_json::{Map, Value};

use super::error::AgentError;
use super::written::OLD_KEYS;
use crate::duration::has_no_unit;

/// The name that errors use in place of a file name.
const SOURCE: &str = "overrides";

/// One key and its value, in the form of the agent file.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentOverride {
    /// The path of the key: `budget.usd` is `usd` in `budget`.
    path: Vec<String>,
    value: Value,
}

/// The keys of an agent file whose values are durations.
const DURATION_KEYS: [&str; 5] = ["budget.time", "cache", "llmTimeout", "timeout", "toolTimeout"];

/// Several overrides. For the same key, the last one is used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentOverrides(pub Vec<AgentOverride>);

impl AgentOverride {
    /// Parses `key=value`, with the value as YAML; an empty value is an empty list. A plain number for a duration is in
    /// seconds, as in every command-line flag; in a file it is in milliseconds.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected KEY=VALUE such as maxTurns=5 or budget.usd=0.5; got `{text}`");
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let path: Vec<String> = key.trim().split('.').map(str::to_owned).collect();
        if path.iter().any(String::is_empty) {
            return Err(wrong());
        }
        let value = match value.trim() {
            "" => Value::Array(Vec::new()),
            seconds if DURATION_KEYS.contains(&key.trim()) && has_no_unit(seconds) => {
                Value::String(format!("{seconds}s"))
            }
            written => crate::yaml::from_str(written).map_err(|error| {
                format!("`{key}`: {}", error.to_string().lines().next().unwrap_or_default())
            })?,
        };
        Ok(Self { path, value })
    }

    /// Creates the override of one key, given as a path such as `budget.usd`.
    pub fn new(key: &str, value: Value) -> Self {
        Self { path: key.split('.').map(str::to_owned).collect(), value }
    }

    pub fn key(&self) -> String {
        self.path.join(".")
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    fn put(&self, keys: &mut Map<String, Value>) {
        let Some((last, way)) = self.path.split_last() else { return };
        let mut keys = keys;
        for step in way {
            let below = keys.entry(step.clone()).or_insert_with(|| Value::Object(Map::new()));
            if !below.is_object() {
                *below = Value::Object(Map::new());
            }
            let Value::Object(next) = below else { return };
            keys = next;
        }
        if let ([], Some(other)) = (way, other_name(last)) {
            keys.remove(other);
        }
        keys.insert(last.clone(), self.value.clone());
    }
}

/// Returns the other name of a renamed key. An override must replace the key of the file under both of its names.
fn other_name(key: &str) -> Option<&'static str> {
    OLD_KEYS.iter().find_map(|(old, new)| match key {
        _ if key == *old => Some(*new),
        _ if key == *new => Some(*old),
        _ => None,
    })
}

impl AgentOverrides {
    /// Returns the YAML of a file with these keys changed. The result is JSON, which is also YAML; only our own parser
    /// reads it.
    pub(super) fn over(&self, yaml: &str) -> Result<String, AgentError> {
        let is_empty = yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let mut keys: Map<String, Value> = if is_empty {
            Map::new()
        } else {
            crate::yaml::from_str(yaml).map_err(|error| AgentError::new(SOURCE, 1, error.to_string()))?
        };
        self.0.iter().for_each(|one| one.put(&mut keys));
        Ok(Value::Object(keys).to_string())
    }

    /// Attributes an error to the overrides, because the file alone was read without errors before.
    pub(super) fn attribute_error(&self, error: &AgentError) -> AgentError {
        let keys: Vec<String> = self.0.iter().map(|one| one.path.join(".")).collect();
        let message = format!("{} ({})", error.message, keys.join(", "));
        AgentError::new(SOURCE, 1, message).with_hint(error.hint.clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::agents::{AgentDefinition, AgentReadContext};

    use super::*;

    fn read(text: &str, written: &[&str]) -> Result<AgentDefinition, String> {
        let overrides: Result<Vec<_>, _> = written.iter().map(|one| AgentOverride::parse(one)).collect();
        let around = AgentReadContext { read: &|_| Err("no".into()), variable: &|_| None };
        AgentDefinition::read_with_overrides("a.md", text, &AgentOverrides(overrides?), around)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn overrides_replace_only_the_named_keys() {
        let text = "---\nmaxTurns: 3\nbudget: {usd: 1, calls: 5}\ntools: [read]\n---\nHi.";
        let agent =
            read(text, &["maxTurns=7", "budget.usd=0.5", "tools=", "models=a/b, c/d", "maxTurns=8"]).unwrap();
        assert_eq!((agent.limits.turns_max, agent.budget.usd, agent.budget.calls), (8, Some(0.5), Some(5)));
        assert_eq!((agent.reach.tools.unwrap().len(), agent.body.as_str()), (0, "Hi."));
        assert_eq!(agent.models, ["a/b", "c/d"]);
        assert_eq!(read("no keys", &["reasoning=high"]).unwrap().body, "no keys");
    }

    #[test]
    fn override_replaces_the_key_under_its_old_and_its_new_name() {
        for (text, written) in [
            ("maxRetries: 2", "maxAttempts=3"),
            ("maxAttempts: 2", "maxRetries=3"),
            ("maxAttempts: 2", "maxAttempts=3"),
        ] {
            let agent = read(&format!("---\n{text}\n---\n"), &[written]).unwrap();
            assert_eq!(agent.limits.attempts_max, 3, "{text} {written}");
        }
    }

    #[test]
    fn duration_override_without_a_unit_is_in_seconds() {
        for (written, millis) in [("timeout=5", 5_000), ("timeout=0.5", 500), ("timeout=1500ms", 1_500)] {
            assert_eq!(read("", &[written]).unwrap().times.run.as_millis(), millis, "{written}");
        }
        for key in DURATION_KEYS {
            let written = format!("{key}=5");
            let in_millis = format!("{key}=5000ms");
            let times = |written: &str| format!("{:?}", read("", &[written]).unwrap());
            assert_eq!(times(&written), times(&in_millis), "{key}");
        }
    }

    #[test]
    fn invalid_override_is_reported_with_its_position() {
        let check = |written: &str, part: &str| {
            let error = read("---\nmaxTurns: 3\n---\n", &[written]).unwrap_err();
            assert!(error.contains(part), "{written}: {error}");
        };
        check("maxTurn=5", "overrides:1: unknown key `maxTurn` (maxTurn); did you mean `maxTurns`?");
        check("maxTurns=0", "expected a whole number from 1");
        check("budget.dollars=1", "unknown key `dollars`");
        check("maxTurns", "expected KEY=VALUE");
        check(".a=1", "expected KEY=VALUE");
        check("tools=[", "`tools`: ");
    }
}
