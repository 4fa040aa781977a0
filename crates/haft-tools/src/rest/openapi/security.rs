//! Matches the security schemes of an OpenAPI document with the operator's credentials.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use super::super::credential::{Credential, RestKeyLocation};
use super::super::guard::AllowedHosts;
use super::super::oauth::ClientCredentials;
use super::documents::Node;

/// The operator's credentials for one security scheme.
#[derive(Debug, Clone, Default)]
pub struct SchemeCredentials {
    /// An API key or a token.
    pub token: Option<SecretString>,
    pub username: Option<String>,
    pub password: Option<SecretString>,
    pub client_id: Option<String>,
    pub client_secret: Option<SecretString>,
    pub scopes: Vec<String>,
    /// Overrides the token URL of the document. It may be on another host, because the operator chose it.
    pub token_url: Option<Url>,
}

/// Returns the credentials by the name of their security scheme, or an error about a credential.
pub(super) fn credentials(
    root: &Node<'_>,
    logins: &BTreeMap<String, SchemeCredentials>,
    reach: &AllowedHosts,
) -> Result<BTreeMap<String, Credential>, String> {
    let schemes = root.get("components").and_then(|components| components.get("securitySchemes"));
    logins
        .iter()
        .map(|(name, login)| {
            let scheme = schemes
                .as_ref()
                .and_then(|schemes| schemes.get(name))
                .ok_or_else(|| unknown(name, schemes))?;
            let credential =
                credential(&scheme, login, reach).map_err(|reason| format!("`auth.{name}`: {reason}"))?;
            Ok((name.clone(), credential))
        })
        .collect()
}

fn unknown(name: &str, schemes: Option<Node<'_>>) -> String {
    let known: Vec<&str> = schemes.iter().flat_map(Node::members).map(|(name, _)| name).collect();
    let known = if known.is_empty() { "none; use `headers`".to_owned() } else { known.join(", ") };
    format!(
        "`auth.{name}`: the OpenAPI document has no security scheme with this name; its schemes are: {known}"
    )
}

fn credential(
    scheme: &Node<'_>,
    login: &SchemeCredentials,
    reach: &AllowedHosts,
) -> Result<Credential, String> {
    let kind = scheme.text("type").unwrap_or_default();
    let http = scheme.text("scheme").unwrap_or_default().to_ascii_lowercase();
    let token = || login.token.clone().ok_or_else(|| "the field `token` is missing".to_owned());
    match (kind, http.as_str()) {
        ("apiKey", _) => Ok(Credential::Key {
            place: match scheme.text("in") {
                Some("query") => RestKeyLocation::Query,
                Some("cookie") => RestKeyLocation::Cookie,
                Some(_) | None => RestKeyLocation::Header,
            },
            name: scheme
                .text("name")
                .ok_or("the security scheme does not name the header or parameter for its key")?
                .to_owned(),
            value: token()?,
        }),
        ("http", "basic") => Ok(Credential::Basic {
            username: login.username.clone().ok_or("the field `username` is missing")?,
            password: login.password.clone().unwrap_or_default(),
        }),
        ("oauth2", _) if login.client_id.is_some() => client_credentials(scheme, login, reach),
        ("http" | "oauth2" | "openIdConnect", _) => token().map(Credential::Bearer),
        (other, _) => Err(format!(
            "the security scheme has the unknown type `{other}`; set the credential with `headers` instead"
        )),
    }
}

/// Builds a client credentials grant. Never sends the secret to an origin that only the document names.
fn client_credentials(
    scheme: &Node<'_>,
    login: &SchemeCredentials,
    reach: &AllowedHosts,
) -> Result<Credential, String> {
    let described = || {
        let url = scheme.value.pointer("/flows/clientCredentials/tokenUrl").and_then(Value::as_str);
        let url = url.and_then(|url| Url::parse(url).ok());
        url.ok_or("the OpenAPI document has no token URL for client credentials; set `tokenUrl`".to_owned())
    };
    let (url, reach) = match &login.token_url {
        Some(url) => (url.clone(), AllowedHosts::named(url)),
        None => (described()?, reach.clone()),
    };
    reach.check_url(&url).map_err(|refusal| {
        format!("haft refuses the token URL: {refusal}; to allow this URL, set `tokenUrl`")
    })?;
    let secret = login.client_secret.clone().ok_or("the field `clientSecret` is missing")?;
    let id = login.client_id.clone().unwrap_or_default();
    Ok(ClientCredentials::new(url, reach, id, secret, login.scopes.clone()).into())
}

/// The maximum number of alternatives that are examined per operation, and of schemes in each.
const ALTERNATIVES_MAX: usize = 50;

/// Returns the schemes whose credentials are added to the operation's requests: the first alternative for which the
/// operator has configured all schemes.
pub(super) fn needed(
    root: &Node<'_>,
    operation: &Node<'_>,
    known: &BTreeMap<String, Credential>,
) -> Vec<String> {
    let Some(alternatives) = operation.get("security").or_else(|| root.get("security")) else {
        // The document does not mention security, so all credentials that the operator configured are used.
        return known.keys().cloned().collect();
    };
    let names = |alternative: Node<'_>| {
        let names = alternative.members().take(ALTERNATIVES_MAX).map(|(name, _)| name.to_owned());
        names.collect::<Vec<String>>()
    };
    let configured = |names: &Vec<String>| names.iter().all(|name| known.contains_key(name));
    // An empty alternative allows anonymous requests; sort it last, so that configured credentials are preferred.
    let mut found: Vec<Vec<String>> =
        alternatives.items().take(ALTERNATIVES_MAX).map(names).filter(configured).collect();
    found.sort_by_key(Vec::is_empty);
    found.into_iter().next().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]
mod tests {
    use serde_json::json;

    use super::super::fixture::documents;
    use super::*;

    fn logins(name: &str, login: SchemeCredentials) -> BTreeMap<String, SchemeCredentials> {
        BTreeMap::from([(name.to_owned(), login)])
    }

    fn made(scheme: Value, login: SchemeCredentials) -> Result<Credential, String> {
        let documents = documents(&json!({"components": {"securitySchemes": {"s": scheme}}}));
        let reach = AllowedHosts::named(&Url::parse("https://api.example.com").unwrap());
        credentials(&documents.root(), &logins("s", login), &reach).map(|mut all| all.remove("s").unwrap())
    }

    #[test]
    fn each_security_scheme_builds_its_credential() {
        let token = || SchemeCredentials { token: Some("t".into()), ..SchemeCredentials::default() };
        let key = |place: &str| json!({"type": "apiKey", "in": place, "name": "k"});
        assert!(matches!(
            made(key("query"), token()),
            Ok(Credential::Key { place: RestKeyLocation::Query, .. })
        ));
        assert!(matches!(
            made(key("cookie"), token()),
            Ok(Credential::Key { place: RestKeyLocation::Cookie, .. })
        ));
        assert!(matches!(
            made(json!({"type": "http", "scheme": "Bearer"}), token()),
            Ok(Credential::Bearer(_))
        ));
        let basic = SchemeCredentials { username: Some("u".into()), ..SchemeCredentials::default() };
        assert!(matches!(
            made(json!({"type": "http", "scheme": "basic"}), basic),
            Ok(Credential::Basic { .. })
        ));
        let flow = |url: &str| json!({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": url}}});
        let client = || SchemeCredentials {
            client_id: Some("c".into()),
            client_secret: Some("s".into()),
            ..SchemeCredentials::default()
        };
        assert!(matches!(
            made(flow("https://api.example.com/t"), client()),
            Ok(Credential::ClientCredentials(_))
        ));
        for elsewhere in ["https://evil.com/t", "http://api.example.com/t", "https://api.example.com:8443/t"]
        {
            let stolen = made(flow(elsewhere), client()).unwrap_err();
            assert!(stolen.contains("`tokenUrl`"), "{stolen}");
        }
        assert!(
            made(key("header"), SchemeCredentials::default()).unwrap_err().contains("`token` is missing")
        );
    }

    #[test]
    fn first_security_alternative_with_configured_credentials_is_used() {
        let known = BTreeMap::from([
            ("a".to_owned(), Credential::Bearer("x".into())),
            ("b".to_owned(), Credential::Bearer("x".into())),
        ]);
        let check = |security: Option<Value>, expected: &[&str]| {
            let operation = security.map_or_else(|| json!({}), |security| json!({ "security": security }));
            let documents = documents(&json!({ "operation": operation }));
            let root = documents.root();
            assert_eq!(needed(&root, &root.with(&root.value["operation"]), &known), expected);
        };
        check(Some(json!([{"c": []}, {"a": [], "b": []}, {"a": []}])), &["a", "b"]);
        check(Some(json!([{}, {"b": []}])), &["b"]);
        check(Some(json!([])), &[]);
        check(Some(json!([{"c": []}])), &[]);
        check(None, &["a", "b"]);
    }
}
