//! The desktop keyring: any service that implements the Secret Service API on the session bus. haft never asks the user
//! to unlock it.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::duration_text;
use haft_tools::mcp::Keyring;
use secrecy::{ExposeSecret, SecretString};
use secret_service::{Collection, EncryptionType, Error, SecretService};

/// The timeout of one keyring operation, including the connection to the keyring.
const PATIENCE: Duration = Duration::from_secs(1);

/// The value of the attribute `application` that marks haft's secrets in the keyring.
const APPLICATION: &str = "haft";

/// The Secret Service on the session bus, if there is one.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecretServiceKeyring;

impl Keyring for SecretServiceKeyring {
    fn get<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Option<SecretString>, String>> {
        Box::pin(with_keyring_timeout(async move {
            let service = connect().await?;
            let open = unlocked(&service).await?;
            let found = open.search_items(attributes(account)).await?;
            let Some(item) = found.first() else { return Ok(None) };
            Ok(String::from_utf8(item.get_secret().await?).ok().map(SecretString::from))
        }))
    }

    fn put<'a>(&'a self, account: &'a str, secret: SecretString) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(with_keyring_timeout(async move {
            let service = connect().await?;
            let open = unlocked(&service).await?;
            let label = format!("haft: secrets of {account}");
            let bytes = secret.expose_secret().as_bytes();
            open.create_item(&label, attributes(account), bytes, true, "application/json").await.map(drop)
        }))
    }

    fn remove<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(with_keyring_timeout(async move {
            let service = connect().await?;
            for item in unlocked(&service).await?.search_items(attributes(account)).await? {
                item.delete().await?;
            }
            Ok(())
        }))
    }
}

async fn with_keyring_timeout<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    if !has_session_bus(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        return Err(
            "the keyring needs D-Bus, but there is no session bus; set DBUS_SESSION_BUS_ADDRESS".into()
        );
    }
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Error::Locked)) => Err("the keyring is locked; unlock the keyring and try again".into()),
        Ok(Err(Error::NoResult)) => Err("the keyring has no default collection".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the keyring did not answer within {}", duration_text::in_words(PATIENCE))),
    }
}

/// Returns true if a session bus exists. Without this check, the D-Bus library may start a bus just for haft.
fn has_session_bus(is_set: impl Fn(&str) -> bool) -> bool {
    is_set("DBUS_SESSION_BUS_ADDRESS") || is_set("XDG_RUNTIME_DIR")
}

async fn connect() -> Result<SecretService<'static>, Error> {
    SecretService::connect(EncryptionType::Dh).await
}

/// Returns the default collection if it is unlocked. Unlocking would prompt the user for a password at an unexpected
/// moment.
async fn unlocked<'a>(service: &'a SecretService<'_>) -> Result<Collection<'a>, Error> {
    let collection = service.get_default_collection().await?;
    if collection.is_locked().await? { Err(Error::Locked) } else { Ok(collection) }
}

fn attributes(account: &str) -> HashMap<&str, &str> {
    HashMap::from([("application", APPLICATION), ("account", account)])
}
