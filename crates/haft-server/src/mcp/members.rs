//! Leaves out the members of a definition whose JSON type many clients refuse.
//!
//! The official SDKs parse a whole list at once. One member of a wrong type would take all tools, of all servers, away
//! from their users.

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::object::RawObject;

/// The JSON type that clients require.
#[derive(Debug, Clone, Copy)]
enum JsonType {
    Text,
    Boolean,
    /// A whole number, not negative.
    Size,
    /// A number from 0 to 1.
    Fraction,
    /// A date and a time with an offset, as in RFC 3339.
    Timestamp,
    OneOf(&'static [&'static str]),
    /// An object. Members that are not in the list may have every value.
    Object(&'static [Member]),
    Array(&'static JsonType),
}

/// A member with a type that clients require.
#[derive(Debug)]
pub(super) struct Member {
    name: &'static str,
    json_type: JsonType,
    /// True if clients refuse an object without this member.
    is_required: bool,
}

const fn optional(name: &'static str, json_type: JsonType) -> Member {
    Member { name, json_type, is_required: false }
}

const fn required(name: &'static str, json_type: JsonType) -> Member {
    Member { name, json_type, is_required: true }
}

const TITLE: Member = optional("title", JsonType::Text);
const DESCRIPTION: Member = optional("description", JsonType::Text);
const META: Member = optional("_meta", JsonType::Object(&[]));
const ICONS: Member = optional(
    "icons",
    JsonType::Array(&JsonType::Object(&[
        required("src", JsonType::Text),
        optional("mimeType", JsonType::Text),
        optional("sizes", JsonType::Array(&JsonType::Text)),
        optional("theme", JsonType::OneOf(&["light", "dark"])),
    ])),
);
const RESOURCE_ANNOTATIONS: Member = optional(
    "annotations",
    JsonType::Object(&[
        optional("audience", JsonType::Array(&JsonType::OneOf(&["user", "assistant"]))),
        optional("priority", JsonType::Fraction),
        optional("lastModified", JsonType::Timestamp),
    ]),
);
const SCHEMA: JsonType = JsonType::Object(&[
    optional("$schema", JsonType::Text),
    optional("properties", JsonType::Object(&[])),
    optional("required", JsonType::Array(&JsonType::Text)),
]);

/// The members of a tool.
pub(super) const TOOL: &[Member] = &[
    TITLE,
    DESCRIPTION,
    META,
    ICONS,
    optional("inputSchema", SCHEMA),
    optional("outputSchema", SCHEMA),
    optional(
        "annotations",
        JsonType::Object(&[
            TITLE,
            optional("readOnlyHint", JsonType::Boolean),
            optional("destructiveHint", JsonType::Boolean),
            optional("idempotentHint", JsonType::Boolean),
            optional("openWorldHint", JsonType::Boolean),
        ]),
    ),
    optional(
        "execution",
        JsonType::Object(&[optional("taskSupport", JsonType::OneOf(&["forbidden", "optional", "required"]))]),
    ),
];

/// The members of a resource, and of a template.
pub(super) const RESOURCE: &[Member] = &[
    optional("name", JsonType::Text),
    TITLE,
    DESCRIPTION,
    META,
    ICONS,
    RESOURCE_ANNOTATIONS,
    optional("mimeType", JsonType::Text),
    optional("size", JsonType::Size),
];

/// The members of a prompt.
pub(super) const PROMPT: &[Member] = &[
    TITLE,
    DESCRIPTION,
    META,
    ICONS,
    optional(
        "arguments",
        JsonType::Array(&JsonType::Object(&[
            required("name", JsonType::Text),
            TITLE,
            DESCRIPTION,
            optional("required", JsonType::Boolean),
        ])),
    ),
];

/// Removes members of a wrong type, and values of a wrong type inside of members. Returns the paths of what it removed.
pub(super) fn leave_out_refused(object: &mut RawObject<'_>, members: &'static [Member]) -> Vec<String> {
    let mut left_out = LeftOut::default();
    left_out.of_object(object, members, "");
    left_out.0
}

/// The accepted part of a value.
#[derive(Debug, PartialEq, Eq)]
enum Accepted {
    Whole,
    /// The value without the parts that clients refuse.
    Part(String),
    Nothing,
}

impl Accepted {
    fn whole_if(is_accepted: bool) -> Self {
        if is_accepted { Self::Whole } else { Self::Nothing }
    }
}

/// The effect of the types of the members on their object.
#[derive(Debug, PartialEq, Eq)]
enum ObjectChange {
    Unchanged,
    Changed,
    /// A required member is missing.
    Refused,
}

/// The paths of the values that were left out.
#[derive(Debug, Default)]
struct LeftOut(Vec<String>);

impl LeftOut {
    fn of_value(&mut self, text: &str, json_type: JsonType, path: &str) -> Accepted {
        let is_accepted = match json_type {
            JsonType::Object(members) => {
                let Some(mut object) = RawObject::of(text) else { return Accepted::Nothing };
                return match self.of_object(&mut object, members, path) {
                    ObjectChange::Unchanged => Accepted::Whole,
                    ObjectChange::Changed => Accepted::Part(object.to_string()),
                    ObjectChange::Refused => Accepted::Nothing,
                };
            }
            JsonType::Array(item) => return self.of_array(text, *item, path),
            JsonType::Text => text.starts_with('"'),
            JsonType::Boolean => matches!(text, "true" | "false"),
            JsonType::Size => text.parse::<u64>().is_ok(),
            JsonType::Fraction => text.parse().is_ok_and(|part: f64| (0.0..=1.0).contains(&part)),
            JsonType::Timestamp => parsed(text).is_some_and(|time| is_timestamp(&time)),
            JsonType::OneOf(words) => parsed(text).is_some_and(|word| words.contains(&word.as_str())),
        };
        Accepted::whole_if(is_accepted)
    }

    fn of_object(
        &mut self,
        object: &mut RawObject<'_>,
        members: &'static [Member],
        path: &str,
    ) -> ObjectChange {
        let has_duplicates = object.remove_duplicates();
        let mut change = if has_duplicates { ObjectChange::Changed } else { ObjectChange::Unchanged };
        for member in members {
            let path = if path.is_empty() { member.name.into() } else { format!("{path}.{}", member.name) };
            let accepted = object.get(member.name).map(|text| self.of_value(text, member.json_type, &path));
            match accepted {
                Some(Accepted::Part(text)) => {
                    object.set(member.name, text);
                    change = ObjectChange::Changed;
                }
                None | Some(Accepted::Nothing) if member.is_required => return ObjectChange::Refused,
                None | Some(Accepted::Whole) => {}
                Some(Accepted::Nothing) => {
                    object.remove(member.name);
                    self.add(path);
                    change = ObjectChange::Changed;
                }
            }
        }
        change
    }

    fn of_array(&mut self, text: &str, item: JsonType, path: &str) -> Accepted {
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(text) else { return Accepted::Nothing };
        let accepted: Vec<Accepted> =
            items.iter().map(|sent| self.of_value(sent.get(), item, path)).collect();
        if accepted.iter().all(|accepted| *accepted == Accepted::Whole) {
            return Accepted::Whole;
        }
        let mut kept: Vec<&str> = Vec::new();
        for (sent, accepted) in items.iter().zip(&accepted) {
            match accepted {
                Accepted::Whole => kept.push(sent.get()),
                Accepted::Part(text) => kept.push(text),
                Accepted::Nothing => self.add(path.to_owned()),
            }
        }
        Accepted::Part(format!("[{}]", kept.join(",")))
    }

    fn add(&mut self, path: String) {
        if !self.0.contains(&path) {
            self.0.push(path);
        }
    }
}

fn parsed(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

/// Returns true for a time such as `2025-01-12T15:00:58Z`. The format of some clients is stricter than that of `jiff`,
/// which also accepts a space, small letters, and an offset without a colon.
fn is_timestamp(time: &str) -> bool {
    let has_form =
        time.is_char_boundary(10) && time[10..].starts_with('T') && !time.contains(['t', 'z', ' ', '[']);
    let has_offset = time.ends_with('Z') || time.len() > 6 && time.as_bytes()[time.len() - 3] == b':';
    has_form && has_offset && time.parse::<Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(members: &'static [Member], sent: &str, expected: &str, left_out: &[&str]) {
        let mut object = RawObject::of(sent).unwrap();
        assert_eq!(leave_out_refused(&mut object, members), left_out, "{sent}");
        assert_eq!(object.to_string(), expected, "{sent}");
    }

    #[test]
    fn accepted_members_and_unknown_members_of_a_tool_stay_as_they_were_sent() {
        let sent = concat!(
            r#"{"name":"t","title":"T","description":"D","icons":[{"src":"s","sizes":["48x48"],"theme":"dark","v":1.0}],"#,
            r#""inputSchema":{"type":"object","properties":{"a":true},"required":["a"],"x":null},"vendor":null,"#,
            r#""annotations":{"readOnlyHint":true,"title":"T","v":[ ]},"execution":{"taskSupport":"optional"},"#,
            r#""outputSchema":{"anyOf":[]},"_meta":{"a":null}}"#
        );
        check(TOOL, sent, sent, &[]);
    }

    #[test]
    fn tool_members_of_a_wrong_type_are_left_out() {
        let of_tool = |sent: &str, expected: &str, left_out: &str| check(TOOL, sent, expected, &[left_out]);
        for name in ["description", "title", "icons", "annotations", "execution", "_meta", "outputSchema"] {
            for wrong in ["null", "7", "true", if name == "icons" { "{}" } else { "[]" }] {
                of_tool(&format!(r#"{{"name":"t","{name}":{wrong},"v":1}}"#), r#"{"name":"t","v":1}"#, name);
            }
        }
        of_tool(
            r#"{"annotations":{"title":"T","readOnlyHint":"yes"}}"#,
            r#"{"annotations":{"title":"T"}}"#,
            "annotations.readOnlyHint",
        );
        of_tool(r#"{"execution":{"taskSupport":"x"}}"#, r#"{"execution":{}}"#, "execution.taskSupport");
        of_tool(r#"{"icons":["a",{"src":"s"},{"mimeType":"m"}]}"#, r#"{"icons":[{"src":"s"}]}"#, "icons");
        of_tool(r#"{"icons":[{"src":"s","theme":"blue"}]}"#, r#"{"icons":[{"src":"s"}]}"#, "icons.theme");
        of_tool(r#"{"outputSchema":{"$schema":7}}"#, r#"{"outputSchema":{}}"#, "outputSchema.$schema");
        of_tool(r#"{"inputSchema":{"required":true}}"#, r#"{"inputSchema":{}}"#, "inputSchema.required");
        of_tool(r#"{"inputSchema":{"properties":[]}}"#, r#"{"inputSchema":{}}"#, "inputSchema.properties");
    }

    #[test]
    fn last_member_is_used_if_several_members_have_the_same_name() {
        check(TOOL, r#"{"title":null,"title":"T"}"#, r#"{"title":"T"}"#, &[]);
        check(TOOL, r#"{"v":1,"title":"T","title":null}"#, r#"{"v":1}"#, &["title"]);
        check(TOOL, r#"{"_meta":{"a":1,"a":2}}"#, r#"{"_meta":{"a":2}}"#, &[]);
    }

    #[test]
    fn resource_and_prompt_members_of_a_wrong_type_are_left_out() {
        let whole = r#"{"size":7,"annotations":{"audience":["user"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z"}}"#;
        check(RESOURCE, whole, whole, &[]);
        check(
            RESOURCE,
            r#"{"size":1.5,"mimeType":null,"annotations":{"audience":["all"],"priority":2,"lastModified":"today"}}"#,
            r#"{"annotations":{"audience":[]}}"#,
            &["annotations.audience", "annotations.priority", "annotations.lastModified", "mimeType", "size"],
        );
        check(
            PROMPT,
            r#"{"description":7,"arguments":[{"name":"a","required":"yes"},{"description":"b"}]}"#,
            r#"{"arguments":[{"name":"a"}]}"#,
            &["description", "arguments.required", "arguments"],
        );
    }

    #[test]
    fn timestamps_have_a_date_a_time_and_an_offset() {
        for (time, expected) in [
            ("2025-01-12T15:00:58Z", true),
            ("2025-01-12T15:00:58.25+01:00", true),
            ("2025-01-12T15:00:58", false),
            ("2025-01-12 15:00:58Z", false),
            ("2025-01-12t15:00:58z", false),
            ("2025-01-12T15:00:58+0100", false),
            ("2025-13-12T15:00:58Z", false),
            ("2025-01-12", false),
            ("", false),
        ] {
            assert_eq!(is_timestamp(time), expected, "{time}");
        }
    }
}
