//! Tests of third-party schemas, converted for every provider: the tools of real MCP servers and of real APIs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::tool::ToolDefinition;
use haft_core::validate::Schema;
use haft_model_server::schema_check;
use haft_models::schema::{DowngradedSchema, SchemaDialect, downgrade};
use haft_tools::rest::openapi::{ImportSettings, OpenApiSource, OperationFilter, import};
use serde_json::{Map, Value, json};
use url::Url;

use super::call::here;
use super::mcp::real::{npm, python};

/// The number of operations of each API that are checked, spread over the whole API.
const OPERATIONS: usize = 20;

/// The maximum depth of generated arguments.
const DEPTH_MAX: usize = 40;

/// One line per source: its name, the number of its tools, and a column such as `gemini 1 25/26` per schema dialect.
/// This column says that 1 tool loses a constraint, and that the original schemas accept 25 of the 26 generated
/// arguments that the schemas in the dialect accept.
const SERVERS: &str = include_str!("../schemas/servers.txt");
const APIS: &str = include_str!("../schemas/apis.txt");

#[test]
fn tool_schemas_of_real_servers_encode_for_every_provider() {
    let tree = here();
    let workspace = tree.path("ws").to_str().unwrap().to_owned();
    let module = |name: &str| json!({ "command": python(), "args": ["-m", name] });
    let servers = json!({
        "everything": { "command": "node", "args": [npm("server-everything"), "stdio"] },
        "fetch": module("mcp_server_fetch"),
        "filesystem": { "command": "node", "args": [npm("server-filesystem"), workspace] },
        "git": module("mcp_server_git"),
        "memory": { "command": "node", "args": [npm("server-memory")] },
        "thinking": { "command": "node", "args": [npm("server-sequential-thinking")] },
        "time": module("mcp_server_time"),
    });
    tree.file("home/haft.json", &json!({ "mcpServers": servers }).to_string());
    let listed = tree.haft(&["tools", "--json"]).output().expect_code(0).stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let mut sources: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for tool in listed {
        let server = tool["name"].as_str().unwrap().split_once("__").map_or("haft", |(server, _)| server);
        sources.entry(server.to_owned()).or_default().push(tool["input_schema"].clone());
    }
    assert_eq!(sources.len(), 8, "{:?}", sources.keys());
    assert_eq!(summary(&sources), SERVERS);
}

#[test]
fn openapi_schemas_of_real_apis_encode_for_every_provider() {
    let files = ["api.github.com", "box.com", "digitalocean.com", "kubernetes.io", "stripe.com", "zoom.us"];
    let sources = files.iter().map(|name| ((*name).to_owned(), operations(name))).collect();
    assert_eq!(summary(&sources), APIS);
}

fn operations(name: &str) -> Vec<Value> {
    let all = imported(name);
    let step = (all.len() / OPERATIONS).max(1);
    all.iter().step_by(step).take(OPERATIONS).map(|tool| tool.input_schema.clone()).collect()
}

/// Returns the file with the OpenAPI document of a real API.
pub(super) fn description_of(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().map(|tree| tree.join("tools/openapi").join(format!("{name}.json")));
    let file: Option<PathBuf> = places.find(|path| path.exists());
    file.unwrap_or_else(|| panic!("{name} is not there; `cargo xtask install` installs it"))
}

/// Returns the tools of all operations of a real API.
fn imported(name: &str) -> Vec<ToolDefinition> {
    let file = description_of(name);
    let settings = ImportSettings {
        name: "api",
        base_url: Some(Url::parse("https://api.example.com").unwrap()),
        headers: Vec::new(),
        logins: BTreeMap::new(),
        filter: OperationFilter::default(),
        hosts: Vec::new(),
        private: None,
    };
    let all = import(&OpenApiSource::read_file(&file).unwrap(), settings).unwrap().tools;
    all.into_iter().map(|tool| tool.definition).collect()
}

fn summary(sources: &BTreeMap<String, Vec<Value>>) -> String {
    let mut text = String::new();
    for (source, schemas) in sources {
        let _ = write!(text, "{source:<17}{:>3}", schemas.len());
        for grammar in SchemaDialect::ALL {
            let mut sum = DowngradeCounts::default();
            for schema in schemas {
                sum.add(grammar, schema);
            }
            let _ = write!(text, " | {} {} {}/{}", grammar.name(), sum.losing, sum.fitting, sum.accepted);
        }
        text.push('\n');
    }
    text
}

#[derive(Default)]
struct DowngradeCounts {
    losing: usize,
    accepted: usize,
    fitting: usize,
}

impl DowngradeCounts {
    fn add(&mut self, grammar: SchemaDialect, original: &Value) {
        let down = downgrade(original, grammar);
        if let Err(problem) = schema_check::judge(schema_use_of(grammar), &down.schema) {
            panic!("{grammar:?}: {problem}\nof {original}");
        }
        assert_eq!(down, downgrade(original, grammar), "a downgrade always has the same result");
        self.losing += usize::from(!down.losses.is_empty());
        let as_json_schema = without_nullable(&down.schema);
        let told = jsonschema::options().should_validate_formats(true).build(&as_json_schema).unwrap();
        for way in [ArgumentExtent::Least, ArgumentExtent::Most] {
            let arguments = made_up(&down.schema, way, DEPTH_MAX);
            if told.is_valid(&arguments) {
                self.accepted += 1;
                self.fitting += usize::from(fits(original, &down, &arguments));
            }
        }
    }
}

fn schema_use_of(grammar: SchemaDialect) -> schema_check::SchemaUse {
    match grammar {
        SchemaDialect::Json => schema_check::SchemaUse::Tools,
        SchemaDialect::Anthropic => schema_check::SchemaUse::AnthropicTools,
        SchemaDialect::OpenaiStrict => schema_check::SchemaUse::OpenaiStrict,
        SchemaDialect::AnthropicOutput => schema_check::SchemaUse::AnthropicOutput,
        SchemaDialect::Gemini => schema_check::SchemaUse::Gemini,
        SchemaDialect::Ollama => schema_check::SchemaUse::Ollama,
    }
}

/// Returns true if the original schema accepts arguments that the downgraded schema accepts. If it does not, checks
/// that the downgrade reported a removed constraint, and that the error explains the problem.
fn fits(original: &Value, down: &DowngradedSchema, arguments: &Value) -> bool {
    let parsed = RawArguments::from_value(arguments).parse(&ArgumentLimits::default()).unwrap();
    match Schema::compile(original).validate(parsed) {
        Ok(_) => true,
        Err(error) => {
            assert!(
                !down.losses.is_empty(),
                "the downgrade reports no loss, but the tool rejects {arguments}: {}",
                down.schema
            );
            assert!(error.message.len() > 20, "{error}");
            false
        }
    }
}

/// Replaces the keyword `nullable`, which only Gemini supports, by a branch for null, which JSON Schema uses.
fn without_nullable(schema: &Value) -> Value {
    match schema {
        Value::Object(object) => {
            let is_nullable = object.get("nullable") == Some(&Value::Bool(true));
            let inner: Map<_, _> = object
                .iter()
                .filter(|(key, value)| *key != "nullable" || !value.is_boolean())
                .map(|(key, value)| (key.clone(), without_nullable(value)))
                .collect();
            if is_nullable { json!({ "anyOf": [inner, { "type": "null" }] }) } else { Value::Object(inner) }
        }
        Value::Array(all) => all.iter().map(without_nullable).collect(),
        other => other.clone(),
    }
}

/// The extent of generated arguments: as few or as many properties as the schema allows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentExtent {
    /// Only required properties, and null where it is allowed.
    Least,
    Most,
}

fn made_up(schema: &Value, way: ArgumentExtent, depth: usize) -> Value {
    if let Some(branches) = schema["anyOf"].as_array().filter(|_| depth > 0) {
        let null =
            branches.iter().find(|branch| branch["type"] == "null").filter(|_| way == ArgumentExtent::Least);
        return null.or(branches.first()).map_or(Value::Null, |branch| made_up(branch, way, depth - 1));
    }
    if schema["nullable"] == true && way == ArgumentExtent::Least {
        return Value::Null;
    }
    if let Some(values) = schema["enum"].as_array() {
        return if way == ArgumentExtent::Least { values.last() } else { values.first() }
            .cloned()
            .unwrap_or_default();
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    let null = kinds.iter().find(|kind| *kind == "null").filter(|_| way == ArgumentExtent::Least);
    match null.or(kinds.first()).and_then(Value::as_str) {
        _ if depth == 0 => Value::Null,
        Some("object") => object(schema, way, depth - 1),
        Some("array") => {
            let least = schema["minItems"].as_u64().unwrap_or(u64::from(way == ArgumentExtent::Most)).min(8);
            (0..least).map(|_| made_up(&schema["items"], way, depth - 1)).collect()
        }
        Some("integer" | "number") => schema["minimum"].as_i64().unwrap_or(1).into(),
        Some("boolean") => true.into(),
        Some("null") => Value::Null,
        _ => "x".repeat(usize::try_from(schema["minLength"].as_u64().unwrap_or(1)).unwrap().min(64)).into(),
    }
}

fn object(schema: &Value, way: ArgumentExtent, depth: usize) -> Value {
    let required = |name: &String| {
        schema["required"].as_array().is_some_and(|all| all.iter().any(|known| known == name))
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let shown = properties.filter(|(name, _)| way == ArgumentExtent::Most || required(name));
    Value::Object(shown.map(|(name, schema)| (name.clone(), made_up(schema, way, depth))).collect())
}
