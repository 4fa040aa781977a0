//! Translates a schema, from its root down, into a smaller language.

use serde_json::{Map, Value, json};

use super::keywords::{is_or_has, make_nullable, set_in_each_branch, tell, tell_default, types_of};
use super::reference::resolve;
use super::{AnyOfSiblings, EnumRule, NullNotation, ObjectRule, SchemaLoss, SchemaRules, TypeRule};

/// The deepest nesting that is translated, with followed references counted.
const DEPTH_MAX: usize = 32;

/// The most schemas that are written, because references can multiply them exponentially.
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
    let said = walk.unfinished(root);
    let schema = walk.finished(said);
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

    /// Returns whether null is valid: it is if every keyword that constrains it allows it.
    fn may_be_null(&self) -> bool {
        !self.nulls.is_empty() && self.nulls.iter().all(|null| *null == NullConstraint::Allowed)
    }
}

impl<'a> SchemaWalk<'a> {
    fn lose(&mut self, keyword: &str, why: &'static str) {
        self.losses.push(SchemaLoss { at: self.at.clone(), keyword: keyword.into(), why });
    }

    fn below(&mut self, steps: &[&str], schema: &'a Value) -> Value {
        let said = self.unfinished_below(steps, schema);
        self.finished(said)
    }

    fn unfinished_below(&mut self, steps: &[&str], schema: &'a Value) -> TranslatedSchema {
        let length = self.at.len();
        for step in steps {
            self.at.push('/');
            self.at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        self.depth += 1;
        let said = self.unfinished(schema);
        self.depth -= 1;
        self.at.truncate(length);
        said
    }

    /// Translates a schema by itself. An enclosing `allOf` may add more about the same value, so missing types are
    /// not filled in yet.
    fn unfinished(&mut self, schema: &'a Value) -> TranslatedSchema {
        self.schemas += 1;
        if self.schemas > SCHEMAS_MAX || self.depth + self.references.len() > DEPTH_MAX {
            self.lose("properties", "are nested too deeply and are omitted here");
            return self.anything("nested further than can be shown");
        }
        match schema {
            Value::Object(object) if object.contains_key("$ref") => self.reference(object),
            Value::Object(object) => self.object(object),
            // `true`, `false` and values that are not schemas.
            _ => TranslatedSchema::default(),
        }
    }

    /// Adds the keywords that the language requires in every schema.
    fn finished(&mut self, said: TranslatedSchema) -> Value {
        let may_be_null = said.may_be_null();
        let mut words = said.words;
        self.complete(&mut words);
        if may_be_null {
            make_nullable(&mut words, self.rules.nulls);
        }
        match self.rules.choices {
            AnyOfSiblings::Nothing if words.contains_key("anyOf") => self.alone(words),
            AnyOfSiblings::Nothing | AnyOfSiblings::Anything => Value::Object(words),
        }
    }

    /// Returns a choice without other keywords. The description and `nullable` move into each branch. A choice that
    /// only narrows the other keywords is dropped.
    fn alone(&mut self, mut said: Map<String, Value>) -> Value {
        let narrows = ["properties", "items", "enum"].iter().any(|key| said.contains_key(*key))
            || said.get("type").is_some_and(|kind| kind != "object");
        let Some(Value::Array(mut branches)) = said.remove("anyOf") else { return Value::Object(said) };
        if narrows {
            self.lose("anyOf", "is not allowed beside other keywords and is omitted");
            // Only the branches may have stated the type.
            self.complete(&mut said);
            return Value::Object(said);
        }
        if said.get("type").is_some_and(|kind| branches.iter().any(|branch| branch["type"] != *kind)) {
            self.lose("type", "is not allowed beside `anyOf` and is omitted");
        }
        for word in ["description", "nullable"] {
            if let Some(value) = said.get(word) {
                set_in_each_branch(&mut branches, word, value);
            }
        }
        json!({ "anyOf": branches })
    }

    /// Replaces a reference with its target, and applies the keywords beside it on top.
    fn reference(&mut self, object: &'a Map<String, Value>) -> TranslatedSchema {
        let reference = object.get("$ref").and_then(Value::as_str).unwrap_or_default();
        if self.references.contains(&reference) {
            self.lose("$ref", "is recursive and is not expanded here");
            return self.anything("the same shape again");
        }
        let Some(target) = resolve(self.root, reference) else {
            self.lose("$ref", "points outside of the schema");
            return self.anything("any value");
        };
        self.references.push(reference);
        let mut said = self.unfinished(target);
        self.references.pop();
        for (keyword, value) in object.iter().filter(|(keyword, _)| *keyword != "$ref") {
            self.apply_beside_reference(&mut said.words, keyword, value);
        }
        said
    }

    /// Applies a keyword beside a reference. Descriptions and defaults are common; others are rare and only
    /// reported as a loss.
    fn apply_beside_reference(&mut self, said: &mut Map<String, Value>, keyword: &str, value: &Value) {
        match keyword {
            "description" | "title" if self.rules.keeps.contains(&keyword) => {
                said.insert(keyword.into(), value.clone());
            }
            "default" => tell_default(said, value),
            "$defs" | "definitions" | "$schema" | "$id" | "$comment" | "title" | "description" => {}
            _ => self.lose(keyword, "is not allowed beside `$ref` and is omitted"),
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
        let mut said = TranslatedSchema::default();
        for (keyword, value) in object {
            self.keyword(&mut said, keyword, value, object);
        }
        let all = object.get("allOf").and_then(Value::as_array).into_iter().flatten().enumerate();
        let all = all.map(|(number, branch)| ("allOf", number, branch));
        // A choice with one branch is no choice, so the branch is merged into the schema.
        let only = ["anyOf", "oneOf"].into_iter().filter_map(|keyword| {
            let branches = self.branches(object.get(keyword)?);
            let [(number, branch)] = branches.as_slice() else { return None };
            Some((keyword, *number, *branch))
        });
        let branches: Vec<_> = all.chain(only).collect();
        self.merged(said, &branches)
    }

    /// Returns the branches of a choice, without a null branch that is expressed as a flag.
    fn branches(&self, value: &'a Value) -> Vec<(usize, &'a Value)> {
        let flagged = |branch: &Value| self.rules.nulls == NullNotation::AsFlag && branch["type"] == "null";
        let all = value.as_array().into_iter().flatten().enumerate();
        all.filter(|(_, branch)| !flagged(branch)).collect()
    }

    fn keyword(
        &mut self,
        said: &mut TranslatedSchema,
        keyword: &str,
        value: &'a Value,
        whole: &'a Map<String, Value>,
    ) {
        match keyword {
            "type" => self.types(said, value),
            "properties" => self.properties(&mut said.words, value, whole),
            "required" => self.required(&mut said.words, value, whole),
            "items" => {
                let items = self.below(&["items"], value);
                said.words.insert("items".into(), items);
            }
            "anyOf" | "oneOf" => self.any_of(said, keyword, value),
            "enum" => self.enumeration(said, value),
            "const" => self.constant(said, value),
            "format" => self.format(&mut said.words, value),
            "additionalProperties" => self.additional(value),
            "default" if !self.rules.keeps.contains(&"default") => tell_default(&mut said.words, value),
            // These are merged afterwards or carry no constraint, so nothing is lost.
            "allOf" | "$defs" | "definitions" | "$schema" | "$id" | "id" | "$comment" | "examples"
            | "example" | "$anchor" | "readOnly" | "writeOnly" | "deprecated" | "title" | "description"
                if !self.rules.keeps.contains(&keyword) => {}
            _ if self.rules.keeps.contains(&keyword) => {
                said.words.entry(keyword).or_insert_with(|| value.clone());
            }
            "allOf" | "$defs" | "definitions" | "$schema" | "$id" | "id" | "$comment" => {}
            _ => self.lose(keyword, "is not supported by the provider"),
        }
    }

    /// Translates `type`. For languages without type lists, null becomes a flag and only the first other type is
    /// kept.
    fn types(&mut self, said: &mut TranslatedSchema, value: &'a Value) {
        if self.rules.nulls == NullNotation::AsType {
            if value.is_string() || value.is_array() {
                said.words.insert("type".into(), value.clone());
            }
            return;
        }
        let types = match value {
            Value::Array(types) => types.as_slice(),
            one => std::slice::from_ref(one),
        };
        let rest: Vec<_> = types.iter().filter(|kind| kind.is_string() && *kind != "null").collect();
        said.null((rest.len() < types.len()).then_some(NullConstraint::Allowed));
        match rest.as_slice() {
            [] => {}
            [one] => {
                said.words.insert("type".into(), (*one).clone());
            }
            [first, ..] => {
                self.lose("type", "is a list, which the provider does not support; the first type is used");
                said.words.insert("type".into(), (*first).clone());
            }
        }
    }

    fn properties(&mut self, said: &mut Map<String, Value>, value: &'a Value, whole: &'a Map<String, Value>) {
        let Value::Object(properties) = value else { return };
        let required = whole.get("required").and_then(Value::as_array);
        let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|known| known == name));
        let mut shown = Map::new();
        for (name, schema) in properties {
            let mut property = self.below(&["properties", name], schema);
            if self.rules.objects == ObjectRule::ClosedAndRequired && !is_required(name) {
                if let Some(property) = property.as_object_mut() {
                    make_nullable(property, self.rules.nulls);
                }
                let at = format!("{}/properties/{name}", self.at);
                let why = "is optional, which is sent as nullable";
                self.losses.push(SchemaLoss { at, keyword: name.clone(), why });
            }
            shown.insert(name.clone(), property);
        }
        // Gemini rejects an object whose `properties` are empty; a closed object always has the keyword.
        if !shown.is_empty() || self.rules.objects != ObjectRule::Open {
            said.insert("properties".into(), Value::Object(shown));
        }
    }

    /// Translates `required`. Some providers reject names of properties that do not exist.
    fn required(&mut self, said: &mut Map<String, Value>, value: &Value, whole: &Map<String, Value>) {
        let properties = whole.get("properties").and_then(Value::as_object);
        let known = |name: &&Value| {
            name.as_str().is_some_and(|name| properties.is_some_and(|all| all.contains_key(name)))
        };
        let names: Vec<_> = value.as_array().into_iter().flatten().filter(known).cloned().collect();
        if value.as_array().is_some_and(|all| all.len() > names.len()) {
            self.lose("required", "names properties that are not defined");
        }
        if !names.is_empty() {
            said.insert("required".into(), Value::Array(names));
        }
    }

    fn any_of(&mut self, said: &mut TranslatedSchema, keyword: &str, value: &'a Value) {
        let branches = self.branches(value);
        let flagged = value.as_array().is_some_and(|all| all.len() > branches.len());
        // A choice with a single branch is merged afterwards.
        if branches.len() < 2 {
            if flagged {
                said.null(Some(NullConstraint::Allowed));
            }
            return;
        }
        if keyword == "oneOf" {
            self.lose("oneOf", "is sent as `anyOf`");
        }
        if said.words.contains_key("anyOf") {
            return self.lose(keyword, "is a second `anyOf` or `oneOf` and is omitted");
        }
        let mut shown = Vec::new();
        for (number, branch) in branches {
            shown.push(self.below(&[keyword, &number.to_string()], branch));
        }
        if self.rules.nulls == NullNotation::AsFlag {
            let nullable = flagged || shown.iter().any(|branch| branch["nullable"] == true);
            said.null(nullable.then_some(NullConstraint::Allowed));
        }
        said.words.insert("anyOf".into(), Value::Array(shown));
    }

    fn enumeration(&mut self, said: &mut TranslatedSchema, value: &Value) {
        let Value::Array(values) = value else { return };
        if self.rules.enums == EnumRule::Any {
            said.words.insert("enum".into(), value.clone());
            return;
        }
        let strings: Vec<_> =
            values.iter().filter(|value| value.is_string() && *value != "").cloned().collect();
        let nulls = values.iter().filter(|value| value.is_null()).count();
        said.null((nulls > 0).then_some(NullConstraint::Allowed));
        if strings.len() + nulls == values.len() && !strings.is_empty() {
            said.words.insert("enum".into(), Value::Array(strings));
        } else {
            self.lose("enum", "has values that are not strings; they are listed in the description");
            tell(&mut said.words, &format!("One of: {value}."));
        }
    }

    fn constant(&mut self, said: &mut TranslatedSchema, value: &Value) {
        match self.rules.enums {
            EnumRule::Any => {
                said.words.insert("enum".into(), json!([value]));
            }
            EnumRule::Strings => self.enumeration(said, &json!([value])),
        }
    }

    fn format(&mut self, said: &mut Map<String, Value>, value: &Value) {
        let known = |formats: &[&str]| value.as_str().is_some_and(|format| formats.contains(&format));
        if self.rules.formats.is_none_or(known) {
            said.insert("format".into(), value.clone());
        } else {
            self.lose("format", "has a value that the provider does not support");
        }
    }

    fn additional(&mut self, value: &Value) {
        match (self.rules.objects, value) {
            (ObjectRule::Open, Value::Bool(true))
            | (ObjectRule::Closed | ObjectRule::ClosedAndRequired, Value::Bool(false)) => {}
            (ObjectRule::Open, _) => self.lose("additionalProperties", "is not supported by the provider"),
            (ObjectRule::Closed | ObjectRule::ClosedAndRequired, _) => {
                self.lose("additionalProperties", "must be false for this provider");
            }
        }
    }

    fn complete(&mut self, said: &mut Map<String, Value>) {
        if self.rules.types != TypeRule::Optional && !said.contains_key("anyOf") {
            self.add_type(said);
        }
        let has = |wanted| said.get("type").is_some_and(|types| is_or_has(types, wanted));
        let (is_list, is_object) = (has("array"), has("object") || said.contains_key("properties"));
        if is_list && self.rules.types != TypeRule::Optional && !said.contains_key("items") {
            self.lose("items", self.assumed());
            said.insert("items".into(), json!({ "type": self.any_type() }));
        }
        if is_object && self.rules.objects != ObjectRule::Open {
            self.close(said);
        }
    }

    fn add_type(&mut self, said: &mut Map<String, Value>) {
        if said.contains_key("type") {
            return;
        }
        let kind = if said.contains_key("properties") {
            "object".into()
        } else if said.contains_key("items") {
            "array".into()
        } else if ["minimum", "maximum"].iter().any(|key| said.contains_key(*key)) {
            "number".into()
        } else if let Some(Value::Array(values)) = said.get("enum") {
            types_of(values)
        } else {
            self.lose("type", self.assumed());
            self.any_type()
        };
        said.insert("type".into(), kind);
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
            TypeRule::Optional | TypeRule::Texts => "is missing; a string is assumed",
            TypeRule::Scalars => "is missing; a string, number or boolean is assumed",
        }
    }

    fn close(&mut self, said: &mut Map<String, Value>) {
        said.insert("additionalProperties".into(), Value::Bool(false));
        let properties = said.entry("properties").or_insert_with(|| json!({}));
        let names: Vec<_> =
            properties.as_object().into_iter().flatten().map(|(name, _)| json!(name)).collect();
        if self.rules.objects == ObjectRule::ClosedAndRequired {
            said.insert("required".into(), Value::Array(names));
        }
    }

    /// Merges branches that must all hold into one schema. On a conflict the first one wins.
    fn merged(&mut self, mut said: TranslatedSchema, all: &[(&str, usize, &'a Value)]) -> TranslatedSchema {
        let choice_has_null = said.nulls.contains(&NullConstraint::Allowed);
        for (keyword, number, branch) in all {
            let branch = self.unfinished_below(&[keyword, &number.to_string()], branch);
            // For a choice between one schema and null, the null branch is counted already.
            if *keyword == "allOf" || !choice_has_null {
                said.nulls.extend(branch.nulls);
            }
            for (key, value) in branch.words {
                self.merge(&mut said.words, key, value);
            }
        }
        said
    }

    fn merge(&mut self, said: &mut Map<String, Value>, key: String, value: Value) {
        match (said.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "properties" => {
                for (name, schema) in more {
                    if known.get(&name).is_some_and(|known| *known != schema) {
                        self.lose("allOf", "has branches that contradict each other; the first is used");
                    }
                    known.entry(name).or_insert(schema);
                }
            }
            (Some(Value::Array(known)), Value::Array(more)) if key == "required" => {
                let new: Vec<Value> = more.into_iter().filter(|name| !known.contains(name)).collect();
                known.extend(new);
            }
            (Some(known), more) if *known != more && key != "description" && key != "title" => {
                self.lose("allOf", "has branches that contradict each other; the first is used");
            }
            (Some(_), _) => {}
            (None, more) => {
                said.insert(key, more);
            }
        }
    }
}
