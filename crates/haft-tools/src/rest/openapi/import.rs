//! Imports all operations of an OpenAPI document as tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use secrecy::SecretString;
use url::Url;

use super::super::guard::{AllowedHosts, PrivateAddressRule};
use super::super::tool::{RequestPlan, RestService, RestTool};
use super::documents::{Documents, Node};
use super::filter::{OperationFilter, OperationProperties};
use super::names::ToolNameAllocator;
use super::operation::{OpenApiOperation, definition};
use super::schema::SchemaInliner;
use super::security::{self, SchemeCredentials};
use super::servers;
use haft_core::settings::method::Method;

/// The operator's settings for one OpenAPI document.
#[derive(Debug)]
pub struct ImportSettings<'a> {
    /// The configured name of the API, which is a part of every tool name.
    pub name: &'a str,
    pub base_url: Option<Url>,
    pub headers: Vec<(HeaderName, SecretString)>,
    pub logins: BTreeMap<String, SchemeCredentials>,
    pub filter: OperationFilter,
    /// Further hosts that operations may name as their server.
    pub hosts: Vec<String>,
    pub private: Option<PrivateAddressRule>,
}

/// The tools of an imported OpenAPI document, and the skipped operations.
#[derive(Debug)]
pub struct ImportResult {
    pub title: Option<String>,
    pub base: Url,
    pub tools: Vec<RestTool>,
    pub skipped: Vec<SkippedOperation>,
}

/// An operation of the OpenAPI document that did not become a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedOperation {
    /// `GET /path`, or the path alone if the path is invalid.
    pub operation: String,
    pub reason: String,
}

/// The reason why an OpenAPI document gives no tools at all, as a message for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImportError(pub String);

/// The maximum number of operations in one OpenAPI document.
const OPERATIONS_MAX: usize = 10_000;

/// The maximum length of the name of a skipped operation, in characters.
const LINE_CHARS_MAX: usize = 300;

/// The estimated cost of examining one operation, in schema values.
const OPERATION_EFFORT: usize = 500;

/// The maximum number of tags of an operation that are examined.
const TAGS_MAX: usize = 100;

/// Converts the operations of OpenAPI documents to tools.
pub fn import(documents: &Documents, settings: ImportSettings<'_>) -> Result<ImportResult, ImportError> {
    let root = documents.root();
    check_version(&root)?;
    let at = documents.at();
    let described = servers::first(&root, at);
    let base = base(&settings, described.as_ref(), at)?;
    check_recipient(&settings, &base, at)?;
    let reach = reach(&settings, &base, at)?;
    let credentials = security::credentials(&root, &settings.logins, &reach).map_err(ImportError)?;
    let service = Arc::new(RestService::new(reach, settings.headers, credentials));
    let mut importer = Importer {
        root,
        name: settings.name,
        filter: &settings.filter,
        base: &base,
        described: described.and_then(Result::ok),
        at,
        service,
        schemas: SchemaInliner::default(),
        names: ToolNameAllocator::default(),
        tools: Vec::new(),
        skipped: Vec::new(),
    };
    importer.all();
    let Importer { tools, skipped, .. } = importer;
    let title = root.get("info").and_then(|info| info.text("title")).map(str::to_owned);
    Ok(ImportResult { title, tools, skipped, base: base.clone() })
}

fn check_version(root: &Node<'_>) -> Result<(), ImportError> {
    let found = root.text("openapi").or_else(|| root.text("swagger"));
    match found {
        Some(version) if version.starts_with("3.") => {}
        Some(version) => {
            let short: String = version.chars().take(20).collect();
            return Err(ImportError(format!(
                "the document has the unknown version `{short}`; expected OpenAPI 3 or Swagger 2.0"
            )));
        }
        None => {
            return Err(ImportError(
                "the document has neither `openapi` nor `swagger`; is it an OpenAPI document?".into(),
            ));
        }
    }
    if root.get("paths").is_none_or(|paths| !paths.value.is_object()) {
        return Err(ImportError("the OpenAPI document has no `paths`, so it describes no operation".into()));
    }
    Ok(())
}

fn base(
    settings: &ImportSettings<'_>,
    described: Option<&Result<Url, String>>,
    at: Option<&Url>,
) -> Result<Url, ImportError> {
    if let Some(base) = &settings.base_url {
        return Ok(base.clone());
    }
    match described {
        Some(Ok(url)) => Ok(url.clone()),
        Some(Err(reason)) => Err(ImportError(reason.clone())),
        // Without `servers`, the operations are on the host of the document, because the default server of OpenAPI is
        // `/`.
        None => at
            .filter(|at| matches!(at.scheme(), "http" | "https"))
            .and_then(|at| at.join("/").ok())
            .ok_or_else(|| {
                ImportError(
                    "the OpenAPI document names no server; set `baseUrl` to the URL of the service".into(),
                )
            }),
    }
}

/// Checks that a downloaded OpenAPI document does not choose the recipient of credentials, because the document may
/// change with every download. A file on disk may choose it, because the file belongs to the operator.
fn check_recipient(settings: &ImportSettings<'_>, base: &Url, at: Option<&Url>) -> Result<(), ImportError> {
    let has_credentials = !settings.headers.is_empty() || !settings.logins.is_empty();
    let downloaded = at.filter(|at| matches!(at.scheme(), "http" | "https"));
    let Some(at) = downloaded.filter(|_| has_credentials && settings.base_url.is_none()) else {
        return Ok(());
    };
    if AllowedHosts::named(at).with_hosts(&settings.hosts).has_origin(base) {
        return Ok(());
    }
    let server = base.origin().ascii_serialization();
    Err(ImportError(format!(
        "the server {server} is not the origin of the OpenAPI document, so haft sends no credentials there; \
         to send them, set `baseUrl`"
    )))
}

/// Returns the hosts and addresses that requests may reach. A private address is allowed only if the operator named
/// this address, as `baseUrl` or as the URL of the document.
fn reach(settings: &ImportSettings<'_>, base: &Url, at: Option<&Url>) -> Result<AllowedHosts, ImportError> {
    let named = settings.base_url.is_some() || at.is_some_and(|at| at.host() == base.host());
    let reach = if named { AllowedHosts::named(base) } else { AllowedHosts::described(base) };
    let reach = reach.with_hosts(&settings.hosts);
    let reach = match settings.private {
        Some(private) => reach.with_private(private),
        None => reach,
    };
    reach.check_url(base).map_err(|refusal| {
        ImportError(format!(
            "haft cannot use the server in the OpenAPI document: {refusal}; to use another server, set `baseUrl`"
        ))
    })?;
    Ok(reach)
}

struct Importer<'a> {
    root: Node<'a>,
    name: &'a str,
    filter: &'a OperationFilter,
    base: &'a Url,
    /// The server that the document names for all operations, even if `baseUrl` replaces it.
    described: Option<Url>,
    at: Option<&'a Url>,
    service: Arc<RestService>,
    schemas: SchemaInliner,
    names: ToolNameAllocator,
    tools: Vec<RestTool>,
    skipped: Vec<SkippedOperation>,
}

impl<'a> Importer<'a> {
    fn all(&mut self) {
        let paths = self.root.get("paths");
        for (path, item) in paths.iter().flat_map(Node::members) {
            if self.tools.len() + self.skipped.len() >= OPERATIONS_MAX {
                return self.skip(
                    path,
                    format!("haft skipped this and all later operations: the document has more than {OPERATIONS_MAX} operations"),
                );
            }
            match item.resolved() {
                Ok(item) => self.path(path, item),
                Err(bad) => self.skip(path, bad.to_string()),
            }
        }
    }

    fn path(&mut self, path: &'a str, item: Node<'a>) {
        for method in Method::ALL {
            let Some(written) = item.value.get(method.name().to_ascii_lowercase()) else { continue };
            let line = format!("{} {path}", method.name());
            let operation =
                item.with(written).resolved().map(|node| OpenApiOperation { path, method, item, node });
            let made = match operation {
                Ok(operation) if operation.node.value.is_object() => self.operation(&operation),
                Ok(_) => Err("the operation is not an object".into()),
                Err(bad) => Err(bad.to_string()),
            };
            match made {
                Ok(tool) => self.tools.push(tool),
                Err(reason) => self.skip(&line, reason),
            }
        }
    }

    fn operation(&mut self, operation: &OpenApiOperation<'a>) -> Result<RestTool, String> {
        self.schemas.effort.work(OPERATION_EFFORT);
        let id = operation.node.text("operationId");
        let looked = OperationProperties {
            method: operation.method,
            path: operation.path,
            id,
            tags: operation
                .node
                .get("tags")
                .iter()
                .flat_map(Node::items)
                .take(TAGS_MAX)
                .filter_map(|tag| tag.value.as_str())
                .collect(),
            deprecated: operation.node.flag("deprecated"),
        };
        if let Some(reason) = self.filter.skip_reason(&looked) {
            return Err(reason.into());
        }
        let spent = || "reading the OpenAPI document takes more time or memory than allowed; select operations with `includeOperations`";
        if self.schemas.effort.is_spent() {
            return Err(spent().into());
        }
        let made = operation.made(&self.server(operation)?, &self.schemas)?;
        if self.schemas.effort.is_spent() {
            return Err(spent().into());
        }
        let name = self.names.give(self.name, id, operation.method, operation.path);
        Ok(RestTool {
            definition: definition(name, self.name, &made),
            credentials: security::needed(&self.root, &operation.node, &self.service.credentials),
            expected: made.expected,
            plan: RequestPlan::Operation(made.plan),
            service: Arc::clone(&self.service),
            streaming: None,
        })
    }

    /// Returns the server of an operation. If the operation names a server of its own, the operator must have allowed
    /// its origin.
    fn server(&self, operation: &OpenApiOperation<'_>) -> Result<Url, String> {
        let own =
            servers::first(&operation.node, self.at).or_else(|| servers::first(&operation.item, self.at));
        let Some(own) = own else { return Ok(self.base.clone()) };
        let own = own?;
        match self.service.client.reach().check_url(&own) {
            Ok(()) => Ok(own),
            Err(_) if self.is_replaced(&own) => Ok(self.base.clone()),
            Err(refusal) => Err(format!(
                "haft may not call the server that this operation names: {refusal}; to allow another host, add it to `allowHosts`"
            )),
        }
    }

    /// Returns true if an operation names the server that the document names for all operations: `baseUrl` replaces it
    /// here too. Another port on the host of `baseUrl` counts as another server.
    fn is_replaced(&self, own: &Url) -> bool {
        self.described.as_ref().is_some_and(|described| {
            described.origin() == own.origin()
                || described.host() == own.host() && self.base.host() != own.host()
        })
    }

    fn skip(&mut self, operation: &str, reason: String) {
        let operation = operation.chars().take(LINE_CHARS_MAX).collect();
        self.skipped.push(SkippedOperation { operation, reason });
    }
}
