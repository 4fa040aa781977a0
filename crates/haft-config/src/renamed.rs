//! Keys and values of `haft.json` that have a new name. The old name still works, and haft warns about it.
//!
//! A configuration file may be older than the installed version of haft, and after an update, commands must not refuse
//! it.

use serde_json::{Value, json};

/// A renamed key. In the path of its object, `<name>` stands for a name that the operator chooses.
struct RenamedKey {
    object: &'static str,
    old: &'static str,
    new: &'static str,
    /// The number of milliseconds in the old key's unit, such as 1000 for seconds; `None` if the unit did not change.
    old_unit_ms: Option<u64>,
}

/// All renamed keys. Limits are now named `max...`, and times are durations such as `30s`, without a unit in the key
/// name.
///
/// Two groups of keys look like exceptions: the keys in an object named `limits` need no `max`, and
/// `toolOutput.avgLineBytesThreshold` selects how an output is divided, which is not a limit.
const KEYS: [RenamedKey; 17] = [
    key("", "mcpInitConcurrency", "maxMcpStarts"),
    key("", "toolResponseMaxBytes", "maxToolResponseBytes"),
    key("cache", "bytesMax", "maxBytes"),
    key("cache", "entriesMax", "maxEntries"),
    key("catalog", "toolsPerProviderMax", "maxToolsPerProvider"),
    key("mcpServers.<name>", "requestTimeoutMs", "requestTimeout"),
    key("providers.<name>", "attemptsMax", "maxAttempts"),
    key("providers.<name>", "retryAfterMax", "maxRetryAfter"),
    key("queues.<name>", "concurrent", "maxConcurrency"),
    key("queues.<name>", "defaultTimeoutMs", "timeout"),
    key("restTools.<name>.streaming", "timeoutMs", "timeout"),
    RenamedKey { old_unit_ms: Some(1000), ..key("sandbox.limits", "cpuSeconds", "cpuTime") },
    key("serve", "tenantMaxBytes", "maxTenantBytes"),
    key("serve", "workspaceMaxBytes", "maxWorkspaceBytes"),
    key("sessions", "bytesMax", "maxBytes"),
    key("toolOutput", "outputBytesMax", "maxOutputBytes"),
    key("toolOutput", "totalBytesMax", "maxTotalBytes"),
];

const fn key(object: &'static str, old: &'static str, new: &'static str) -> RenamedKey {
    RenamedKey { object, old, new, old_unit_ms: None }
}

/// The old values of `sandbox.mode`, each with its new value.
const MODES: [(&str, &str); 3] = [("sandbox", "workspace"), ("rx", "network"), ("rwx", "full")];

/// A JSON Schema extension keyword. On a renamed key, it contains the new name.
pub(super) const OLD_NAME_OF: &str = "x-old-name-of";

/// A JSON Schema extension keyword. On a renamed key, it contains the factor that converts the old number to
/// milliseconds.
pub(super) const OLD_UNIT_MS: &str = "x-old-unit-ms";

/// A JSON Schema extension keyword. On a value, it maps each renamed word to its new word.
pub(super) const OLD_WORDS: &str = "x-old-words";

/// Adds the old names to the schema. Editors strike through a deprecated key and show its new name.
pub(super) fn add_old_names(schema: &mut Value) {
    for RenamedKey { object, old, new, old_unit_ms } in KEYS {
        let properties = &mut at(schema, object)["properties"];
        let mut inner = match old_unit_ms {
            Some(unit_ms) => json!({ "type": "integer", "minimum": 1, OLD_UNIT_MS: unit_ms }),
            None => properties[new].clone(),
        };
        inner["description"] = json!(format!("The old name of `{new}`"));
        inner["deprecated"] = json!(true);
        inner[OLD_NAME_OF] = json!(new);
        if let Some(inner) = inner.as_object_mut() {
            inner.remove("default");
        }
        properties[old] = inner;
    }
    let words: serde_json::Map<_, _> =
        MODES.iter().map(|(old, new)| ((*old).to_owned(), json!(new))).collect();
    at(schema, "sandbox")["properties"]["mode"][OLD_WORDS] = Value::Object(words);
}

fn at<'s>(schema: &'s mut Value, path: &str) -> &'s mut Value {
    path.split('.').filter(|key| !key.is_empty()).fold(schema, |schema, key| match key {
        "<name>" => &mut schema["additionalProperties"],
        key => &mut schema["properties"][key],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_old_name_belongs_to_a_key_of_the_schema() {
        let mut schema = crate::schema::schema().clone();
        for RenamedKey { object, old, new, .. } in KEYS {
            let properties = &at(&mut schema, object)["properties"];
            assert!(
                properties[new]["type"].is_string() || properties[new]["type"].is_array(),
                "{object}.{new}"
            );
            assert_eq!(properties[old][OLD_NAME_OF], new, "{object}.{old}");
        }
        let mode = &at(&mut schema, "sandbox")["properties"]["mode"];
        for (old, new) in MODES {
            let words = mode["enum"].as_array().unwrap();
            assert!(words.contains(&json!(new)) && !words.contains(&json!(old)), "{old} {new}");
        }
    }
}
