//! Translates a schema, from its root down, into the more limited schema language of a provider.

use serde_json::{Map, Value, json};

use super::keywords::{
    append_description, describe_default, is_or_has, make_nullable, set_in_each_branch, types_of,
};
use super::reference::resolve;
use super::{AnyOfSiblings, EnumRule, NullNotation, ObjectRule, SchemaLoss, SchemaRules, TypeRule};

/// The maximum nesting depth that is translated. Followed references are included.
const DEPTH_MAX: usize = 32;

/// The maximum number of schemas that are written, because references can multiply them exponentially.
const SCHEMAS_MAX: usize = 10_000;

pub(super) fn walk(root: &Value, rules: &'static SchemaRules) -> (Value, Vec<SchemaLoss>) {
    let mut walk = SchemaWalk {
        root,
        rules,
        references: Vec::new(),
        at: String::new(),
        depth: 0,
        schemas: 0,
        losses: Vec::new(),
    };
    let translated = walk.unfinished(root);
    let schema = walk.finished(translated);
    (schema, walk.losses)
}

struct SchemaWalk<'a> {
    root: &'a Value,
    rules: &'static SchemaRules,
    /// The references that are being followed, to detect recursion.
    references: Vec<&'a str>,
    at: String,
    depth: usize,
    schemas: usize,
    losses: Vec<SchemaLoss>,
}

/// A translated schema before defaults are filled in.
#[derive(Debug, Default)]
struct TranslatedSchema {
    words: Map<String, Value>,
    /// One entry per keyword that constrains null, for languages with a `nullable` flag.
    nulls: Vec<NullConstraint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NullConstraint {
    Allowed,
    Excluded,
}

impl TranslatedSchema {
    fn null(&mut self, null: Option<NullConstraint>) {
        self.nulls.push(null.unwrap_or(NullConstraint::Excluded));
    }

    /// Returns true if null is valid. It is valid if every keyword that constrains null allows it.
    fn may_be_null(&self) -> bool {
        !self.nulls.is_empty() && self.nulls.iter().all(|null| *null == NullConstraint::Allowed)
    }
}

impl<'a> SchemaWalk<'a> {
    fn lose(&mut self, keyword: &str, why: &'static str) {
        self.losses.push(SchemaLoss { at: self.at.clone(), keyword: keyword.into(), why });
    }

    fn below(&mut self, steps: &[&str], schema: &'a Value) -> Value {
        let translated = self.unfinished_below(steps, schema);
        self.finished(translated)
    }

    fn unfinished_below(&mut self, steps: &[&str], schema: &'a Value) -> TranslatedSchema {
        let length = self.at.len();
        for step in steps {
            self.at.push('/');
            self.at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        self.depth += 1;
        let translated = self.unfinished(schema);
        self.depth -= 1;
        self.at.truncate(length);
        translated
    }

    /// Translates a schema on its own. An enclosing `allOf` may add more constraints for the same value, so missing
    /// types are not filled in yet.
    fn unfinished(&mut self, schema: &'a Value) -> TranslatedSchema {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX || self.depth + self.references.len() > DEPTH_MAX {
            self.lose("properties", "the properties are nested too deeply; haft omits them");
            return self.anything("nested further than can be shown");
        }
        match schema {
            Value::Object(object) if object.contains_key("$ref") => self.reference(object),
            Value::Object(object) => self.object(object),
            // The schema is `true`, `false`, or a value that is not a schema.
            _ => TranslatedSchema::default(),
        }
    }

    /// Adds the keywords that the language requires in every schema.
    fn finished(&mut self, translated: TranslatedSchema) -> Value {
        let may_be_null = translated.may_be_null();
        let mut words = translated.words;
        self.complete(&mut words);
        if may_be_null {
            make_nullable(&mut words, self.rules.nulls);
        }
        match self.rules.choices {
            AnyOfSiblings::Nothing if words.contains_key("anyOf") => self.alone(words),
            AnyOfSiblings::Nothing | AnyOfSiblings::Anything => Value::Object(words),
        }
    }

    /// Returns a schema that has either `anyOf` or other keywords, for providers that do not accept both. Moves the
    /// description and `nullable` into each branch. Drops `anyOf` if it only narrows the other keywords.
    fn alone(&mut self, mut translated: Map<String, Value>) -> Value {
        let narrows = ["properties", "items", "enum"].iter().any(|key| translated.contains_key(*key))
            || translated.get("type").is_some_and(|kind| kind != "object");
        let Some(Value::Array(mut branches)) = translated.remove("anyOf") else {
            return Value::Object(translated);
        };
        if narrows {
            self.lose(
                "anyOf",
                "the provider does not allow this keyword together with other keywords; haft omits it",
            );
            // Fill in a missing type: the type may have been only in the dropped branches.
            self.complete(&mut translated);
            return Value::Object(translated);
        }
        if translated.get("type").is_some_and(|kind| branches.iter().any(|branch| branch["type"] != *kind)) {
            self.lose(
                "type",
                "the provider does not allow this keyword together with `anyOf`; haft omits it",
            );
        }
        for word in ["description", "nullable"] {
            if let Some(value) = translated.get(word) {
                set_in_each_branch(&mut branches, word, value);
            }
        }
        json!({ "anyOf": branches })
    }

    /// Replaces a reference by its target, and applies the keywords next to the reference.
    fn reference(&mut self, object: &'a Map<String, Value>) -> TranslatedSchema {
        let reference = object.get("$ref").and_then(Value::as_str).unwrap_or_default();
        if self.references.contains(&reference) {
            self.lose("$ref", "the reference is recursive; haft does not expand it");
            return self.anything("the same shape again");
        }
        let Some(target) = resolve(self.root, reference) else {
            self.lose("$ref", "the reference points outside the schema");
            return self.anything("any value");
        };
        self.references.push(reference);
        let mut translated = self.unfinished(target);
        self.references.pop();
        for (keyword, value) in object.iter().filter(|(keyword, _)| *keyword != "$ref") {
            self.apply_beside_reference(&mut translated.words, keyword, value);
        }
        translated
    }

    /// Applies a keyword next to a reference. Descriptions and defaults are common; other keywords are rare and only
    /// reported as a loss.
    fn apply_beside_reference(&mut self, translated: &mut Map<String, Value>, keyword: &str, value: &Value) {
        match keyword {
            "description" | "title" if self.rules.keeps.contains(&keyword) => {
                translated.insert(keyword.into(), value.clone());
            }
            "default" => describe_default(translated, value),
            "$defs" | "definitions" | "$schema" | "$id" | "$comment" | "title" | "description" => {}
            _ => self.lose(
                keyword,
                "the provider does not allow this keyword together with `$ref`; haft omits it",
            ),
        }
    }

    fn anything(&self, note: &str) -> TranslatedSchema {
        let (kind, note) = match self.rules.objects {
            ObjectRule::Open => ("object", note.to_owned()),
            ObjectRule::Closed | ObjectRule::ClosedAndRequired => ("string", format!("{note}, as JSON text")),
        };
        let words = [("type".into(), kind.into()), ("description".into(), note.into())].into_iter().collect();
        TranslatedSchema { words, nulls: vec![NullConstraint::Excluded] }
    }

    fn object(&mut self, object: &'a Map<String, Value>) -> TranslatedSchema {
        let mut translated = TranslatedSchema::default();
        for (keyword, value) in object {
            self.keyword(&mut translated, keyword, value, object);
        }
        let all = object.get("allOf").and_then(Value::as_array).into_iter().flatten().enumerate();
        let all = all.map(|(number, branch)| ("allOf", number, branch));
        // `anyOf` or `oneOf` with one branch means the same as the branch, so it is merged into the schema.
        let only = ["anyOf", "oneOf"].into_iter().filter_map(|keyword| {
            let branches = self.branches(object.get(keyword)?);
            let [(number, branch)] = branches.as_slice() else { return None };
            Some((keyword, *number, *branch))
        });
        let branches: Vec<_> = all.chain(only).collect();
        self.merged(translated, &branches)
    }

    /// Returns the branches of a choice. Leaves out the null branch if the provider expresses null with the flag
    /// `nullable`.
    fn branches(&self, value: &'a Value) -> Vec<(usize, &'a Value)> {
        let flagged = |branch: &Value| self.rules.nulls == NullNotation::AsFlag && branch["type"] == "null";
        let all = value.as_array().into_iter().flatten().enumerate();
        all.filter(|(_, branch)| !flagged(branch)).collect()
    }

    fn keyword(
        &mut self,
        translated: &mut TranslatedSchema,
        keyword: &str,
        value: &'a Value,
        object: &'a Map<String, Value>,
    ) {
        match keyword {
            "type" => self.types(translated, value),
            "properties" => self.properties(&mut translated.words, value, object),
            "required" => self.required(&mut translated.words, value, object),
            "items" => {
                let items = self.below(&["items"], value);
                translated.words.insert("items".into(), items);
            }
            "anyOf" | "oneOf" => self.any_of(translated, keyword, value),
            "enum" => self.enumeration(translated, value),
            "const" => self.constant(translated, value),
            "format" => self.format(&mut translated.words, value),
            "additionalProperties" => self.additional(value),
            "default" if !self.rules.keeps.contains(&"default") => {
                describe_default(&mut translated.words, value);
            }
            // Leave out these keywords without a loss: they are merged later, or have no effect on validation.
            "allOf" | "$defs" | "definitions" | "$schema" | "$id" | "id" | "$comment" | "examples"
            | "example" | "$anchor" | "readOnly" | "writeOnly" | "deprecated" | "title" | "description"
                if !self.rules.keeps.contains(&keyword) => {}
            _ if self.rules.keeps.contains(&keyword) => {
                translated.words.entry(keyword).or_insert_with(|| value.clone());
            }
            "allOf" | "$defs" | "definitions" | "$schema" | "$id" | "id" | "$comment" => {}
            _ => self.lose(keyword, "the provider does not support this keyword"),
        }
    }

    /// Translates `type`. For languages without type lists, null becomes a flag, and only the first other type is kept.
    fn types(&mut self, translated: &mut TranslatedSchema, value: &'a Value) {
        if self.rules.nulls == NullNotation::AsType {
            if value.is_string() || value.is_array() {
                translated.words.insert("type".into(), value.clone());
            }
            return;
        }
        let types = match value {
            Value::Array(types) => types.as_slice(),
            one => std::slice::from_ref(one),
        };
        let rest: Vec<_> = types.iter().filter(|kind| kind.is_string() && *kind != "null").collect();
        translated.null((rest.len() < types.len()).then_some(NullConstraint::Allowed));
        match rest.as_slice() {
            [] => {}
            [one] => {
                translated.words.insert("type".into(), (*one).clone());
            }
            [first, ..] => {
                self.lose(
                    "type",
                    "the value is a list, which the provider does not support; haft uses the first type",
                );
                translated.words.insert("type".into(), (*first).clone());
            }
        }
    }

    fn properties(
        &mut self,
        translated: &mut Map<String, Value>,
        value: &'a Value,
        object: &'a Map<String, Value>,
    ) {
        let Value::Object(properties) = value else { return };
        let required = object.get("required").and_then(Value::as_array);
        let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|known| known == name));
        let mut shown = Map::new();
        for (name, schema) in properties {
            let mut property = self.below(&["properties", name], schema);
            if self.rules.objects == ObjectRule::ClosedAndRequired && !is_required(name) {
                if let Some(property) = property.as_object_mut() {
                    make_nullable(property, self.rules.nulls);
                }
                let at = format!("{}/properties/{name}", self.at);
                let why = "the property is optional; haft sends it as nullable";
                self.losses.push(SchemaLoss { at, keyword: name.clone(), why });
            }
            shown.insert(name.clone(), property);
        }
        // Leave out empty `properties` of an open object, because Gemini rejects them. A closed object always has
        // `properties`.
        if !shown.is_empty() || self.rules.objects != ObjectRule::Open {
            translated.insert("properties".into(), Value::Object(shown));
        }
    }

    /// Translates `required`. Drops names of properties that do not exist, because some providers reject them.
    fn required(&mut self, translated: &mut Map<String, Value>, value: &Value, object: &Map<String, Value>) {
        let properties = object.get("properties").and_then(Value::as_object);
        let known = |name: &&Value| {
            name.as_str().is_some_and(|name| properties.is_some_and(|all| all.contains_key(name)))
        };
        let names: Vec<_> = value.as_array().into_iter().flatten().filter(known).cloned().collect();
        if value.as_array().is_some_and(|all| all.len() > names.len()) {
            self.lose("required", "the list names properties that are not defined");
        }
        if !names.is_empty() {
            translated.insert("required".into(), Value::Array(names));
        }
    }

    fn any_of(&mut self, translated: &mut TranslatedSchema, keyword: &str, value: &'a Value) {
        let branches = self.branches(value);
        let flagged = value.as_array().is_some_and(|all| all.len() > branches.len());
        // Skip a choice with a single branch here, because that branch is merged into the enclosing schema later.
        if branches.len() < 2 {
            if flagged {
                translated.null(Some(NullConstraint::Allowed));
            }
            return;
        }
        if keyword == "oneOf" {
            self.lose("oneOf", "haft sends this keyword as `anyOf`");
        }
        if translated.words.contains_key("anyOf") {
            return self.lose(keyword, "the schema already has an `anyOf` or `oneOf`; haft omits this one");
        }
        let mut shown = Vec::new();
        for (number, branch) in branches {
            shown.push(self.below(&[keyword, &number.to_string()], branch));
        }
        if self.rules.nulls == NullNotation::AsFlag {
            let nullable = flagged || shown.iter().any(|branch| branch["nullable"] == true);
            translated.null(nullable.then_some(NullConstraint::Allowed));
        }
        translated.words.insert("anyOf".into(), Value::Array(shown));
    }

    fn enumeration(&mut self, translated: &mut TranslatedSchema, value: &Value) {
        let Value::Array(values) = value else { return };
        if self.rules.enums == EnumRule::Any {
            translated.words.insert("enum".into(), value.clone());
            return;
        }
        let strings: Vec<_> =
            values.iter().filter(|value| value.is_string() && *value != "").cloned().collect();
        let nulls = values.iter().filter(|value| value.is_null()).count();
        translated.null((nulls > 0).then_some(NullConstraint::Allowed));
        if strings.len() + nulls == values.len() && !strings.is_empty() {
            translated.words.insert("enum".into(), Value::Array(strings));
        } else {
            self.lose("enum", "some values are not strings; the description lists the values");
            append_description(&mut translated.words, &format!("One of: {value}."));
        }
    }

    fn constant(&mut self, translated: &mut TranslatedSchema, value: &Value) {
        match self.rules.enums {
            EnumRule::Any => {
                translated.words.insert("enum".into(), json!([value]));
            }
            EnumRule::Strings => self.enumeration(translated, &json!([value])),
        }
    }

    fn format(&mut self, translated: &mut Map<String, Value>, value: &Value) {
        let known = |formats: &[&str]| value.as_str().is_some_and(|format| formats.contains(&format));
        if self.rules.formats.is_none_or(known) {
            translated.insert("format".into(), value.clone());
        } else {
            self.lose("format", "the provider does not support this format");
        }
    }

    fn additional(&mut self, value: &Value) {
        match (self.rules.objects, value) {
            (ObjectRule::Open, Value::Bool(true))
            | (ObjectRule::Closed | ObjectRule::ClosedAndRequired, Value::Bool(false)) => {}
            (ObjectRule::Open, _) => {
                self.lose("additionalProperties", "the provider does not support this keyword");
            }
            (ObjectRule::Closed | ObjectRule::ClosedAndRequired, _) => {
                self.lose("additionalProperties", "the value must be false for this provider");
            }
        }
    }

    fn complete(&mut self, translated: &mut Map<String, Value>) {
        if self.rules.types != TypeRule::Optional && !translated.contains_key("anyOf") {
            self.add_type(translated);
        }
        let has = |wanted| translated.get("type").is_some_and(|types| is_or_has(types, wanted));
        let (is_list, is_object) = (has("array"), has("object") || translated.contains_key("properties"));
        if is_list && self.rules.types != TypeRule::Optional && !translated.contains_key("items") {
            self.lose("items", self.assumed());
            translated.insert("items".into(), json!({ "type": self.any_type() }));
        }
        if is_object && self.rules.objects != ObjectRule::Open {
            self.close(translated);
        }
    }

    fn add_type(&mut self, translated: &mut Map<String, Value>) {
        if translated.contains_key("type") {
            return;
        }
        let kind = if translated.contains_key("properties") {
            "object".into()
        } else if translated.contains_key("items") {
            "array".into()
        } else if ["minimum", "maximum"].iter().any(|key| translated.contains_key(*key)) {
            "number".into()
        } else if let Some(Value::Array(values)) = translated.get("enum") {
            types_of(values)
        } else {
            self.lose("type", self.assumed());
            self.any_type()
        };
        translated.insert("type".into(), kind);
    }

    /// Returns the type to write if any value is valid.
    fn any_type(&self) -> Value {
        match self.rules.types {
            TypeRule::Optional | TypeRule::Texts => "string".into(),
            TypeRule::Scalars => json!(["string", "number", "boolean"]),
        }
    }

    fn assumed(&self) -> &'static str {
        match self.rules.types {
            TypeRule::Optional | TypeRule::Texts => "the type is missing; haft assumes a string",
            TypeRule::Scalars => "the type is missing; haft assumes a string, number or boolean",
        }
    }

    fn close(&mut self, translated: &mut Map<String, Value>) {
        translated.insert("additionalProperties".into(), Value::Bool(false));
        let properties = translated.entry("properties").or_insert_with(|| json!({}));
        let names: Vec<_> =
            properties.as_object().into_iter().flatten().map(|(name, _)| json!(name)).collect();
        if self.rules.objects == ObjectRule::ClosedAndRequired {
            translated.insert("required".into(), Value::Array(names));
        }
    }

    /// Merges branches that must all be satisfied into one schema. On a conflict, the first branch is used.
    fn merged(
        &mut self,
        mut translated: TranslatedSchema,
        all: &[(&str, usize, &'a Value)],
    ) -> TranslatedSchema {
        let choice_has_null = translated.nulls.contains(&NullConstraint::Allowed);
        for (keyword, number, branch) in all {
            let branch = self.unfinished_below(&[keyword, &number.to_string()], branch);
            // In a choice between one schema and null, skip the null constraints of the schema, because the null branch
            // is already counted.
            if *keyword == "allOf" || !choice_has_null {
                translated.nulls.extend(branch.nulls);
            }
            for (key, value) in branch.words {
                self.merge(&mut translated.words, key, value);
            }
        }
        translated
    }

    fn merge(&mut self, translated: &mut Map<String, Value>, key: String, value: Value) {
        match (translated.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                for (name, schema) in more {
                    if known.get(&name).is_some_and(|known| *known != schema) {
                        self.lose("allOf", "the branches contradict each other; haft uses the first branch");
                    }
                    known.entry(name).or_insert(schema);
                }
            }
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                let new: Vec<Value> = more.into_iter().filter(|name| !known.contains(name)).collect();
                known.extend(new);
            }
            (Some(known), more) if *known != more && key != "description" && key != "title" => {
                self.lose("allOf", "the branches contradict each other; haft uses the first branch");
            }
            (Some(_), _) => {}
            (None, more) => {
                translated.insert(key, more);
            }
        }
    }
}
