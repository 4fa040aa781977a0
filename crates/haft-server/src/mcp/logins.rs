//! Logins of a client's user at upstream servers. The client gets a URL for its user, and the login continues after the
//! reply, until the user has logged in, the time limit passes, or the gateway closes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::digest::Digest;
use haft_core::principal::Principal;
use haft_runtime::wiring::LoginTarget;
use haft_tools::mcp::{AuthError, LoopbackRedirect, OauthConsent, SupervisedServer, login_state};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use url::Url;

use super::held::AbortOnDrop;

/// The maximum time from the first reply with the URL to the end of the login.
pub(super) const LOGIN_WAIT: Duration = Duration::from_mins(10);

/// The maximum number of open logins of one principal.
const LOGINS_PER_PRINCIPAL_MAX: usize = 8;

/// The maximum number of open logins of all principals.
const LOGINS_MAX: usize = 256;

/// The path of the page on which a user begins a login.
pub(crate) const LOGIN_PATH: &str = "/mcp/login";

/// The path to which authorization servers redirect the browser.
pub(crate) const CALLBACK_PATH: &str = "/mcp/login/callback";

/// The place to which the browser returns after a login.
#[derive(Debug, Clone)]
pub(super) enum LoginPlace {
    /// A local port, because the user is at this machine.
    Loopback,
    /// The pages of this server at its public address.
    Pages { base: String },
    /// The server has no address that a browser on another machine could open.
    Nowhere,
}

/// The open logins of all clients of a gateway.
#[derive(Debug)]
pub(super) struct UpstreamLogins {
    place: Mutex<LoginPlace>,
    open: Mutex<Vec<OpenLogin>>,
}

#[derive(Debug)]
struct OpenLogin {
    login: Arc<PendingLogin>,
    _task: AbortOnDrop,
}

/// The progress of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LoginPhase {
    /// haft finds the authorization server and registers there.
    Preparing,
    /// The user has to open this authorization URL.
    Waiting(Url),
    Finished,
    /// The login has failed for this reason, which the client and its user may see.
    Failed(String),
}

impl LoginPhase {
    fn has_ended(&self) -> bool {
        match self {
            Self::Preparing | Self::Waiting(_) => false,
            Self::Finished | Self::Failed(_) => true,
        }
    }
}

/// One login of a principal at a server.
#[derive(Debug)]
pub(super) struct PendingLogin {
    /// A random name, which the URL for the user contains.
    pub(super) id: String,
    pub(super) principal: Principal,
    pub(super) server: String,
    pub(super) host: String,
    /// The place at which the login began. A reload does not change it, because the authorization request names it.
    place: LoginPlace,
    phase: watch::Sender<LoginPhase>,
    /// Passes the redirect to the waiting login; `None` before the authorization URL is known, and after the redirect.
    redirect: Mutex<Option<oneshot::Sender<Url>>>,
    /// The digest of the cookie of the browser in which the principal identified itself.
    browser: Mutex<Option<Digest>>,
    /// The servers to start after the login.
    servers: Mutex<Vec<Weak<SupervisedServer>>>,
}

/// The reason why a redirect is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectRefusal {
    /// The browser is not the one in which the principal identified itself.
    OtherBrowser,
    /// The login already got its redirect.
    Used,
}

impl UpstreamLogins {
    pub(super) fn new(place: LoginPlace) -> Arc<Self> {
        Arc::new(Self { place: Mutex::new(place), open: Mutex::default() })
    }

    /// Uses this place for later logins. A login that has begun returns to the place where it began.
    pub(super) fn set_place(&self, place: LoginPlace) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    fn place(&self) -> LoginPlace {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a login, or finds the open login of the same principal at the same server. Returns when the user can begin
    /// to log in. The error is for the client.
    pub(super) async fn begin(
        self: &Arc<Self>,
        target: &LoginTarget,
        principal: &Principal,
        server: &Arc<SupervisedServer>,
    ) -> Result<Arc<PendingLogin>, String> {
        let login = self.find_or_start(target, principal)?;
        login.start_later(server);
        let mut phase = login.phase.subscribe();
        let known = phase.wait_for(|phase| *phase != LoginPhase::Preparing).await;
        match known.as_deref() {
            Ok(LoginPhase::Failed(reason)) => Err(reason.clone()),
            Ok(LoginPhase::Preparing | LoginPhase::Waiting(_) | LoginPhase::Finished) => {
                Ok(Arc::clone(&login))
            }
            Err(_) => Err("the login was cancelled".into()),
        }
    }

    fn find_or_start(
        self: &Arc<Self>,
        target: &LoginTarget,
        principal: &Principal,
    ) -> Result<Arc<PendingLogin>, String> {
        let mut open = self.lock();
        open.retain(|open| !open.login.phase.borrow().has_ended());
        let mut logins = open.iter().map(|open| &open.login);
        let is_same =
            |login: &&Arc<PendingLogin>| login.principal == *principal && login.server == target.name;
        if let Some(found) = logins.find(is_same) {
            return Ok(Arc::clone(found));
        }
        let own = open.iter().filter(|open| open.login.principal == *principal).count();
        if own >= LOGINS_PER_PRINCIPAL_MAX || open.len() >= LOGINS_MAX {
            return Err("too many logins are open; finish one of them, or try again in ten minutes".into());
        }
        let login = Arc::new(PendingLogin::new(target, principal, self.place()));
        let task = tokio::spawn(Arc::clone(&login).run(Arc::downgrade(self), target.clone()));
        let task = AbortOnDrop(task.abort_handle());
        open.push(OpenLogin { login: Arc::clone(&login), _task: task });
        Ok(login)
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<PendingLogin>> {
        self.find_by(|login| login.id == id)
    }

    /// Finds the login whose authorization request has this state.
    pub(super) fn find_by_state(&self, state: &str) -> Option<Arc<PendingLogin>> {
        self.find_by(|login| {
            login.authorization_url().and_then(|url| login_state(&url)).as_deref() == Some(state)
        })
    }

    fn find_by(&self, is_meant: impl Fn(&PendingLogin) -> bool) -> Option<Arc<PendingLogin>> {
        self.lock().iter().map(|open| &open.login).find(|login| is_meant(login)).cloned()
    }

    fn remove(&self, id: &str) {
        self.lock().retain(|open| open.login.id != id);
    }

    /// Cancels all logins.
    pub(super) fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenLogin>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingLogin {
    fn new(target: &LoginTarget, principal: &Principal, place: LoginPlace) -> Self {
        Self {
            id: random(),
            principal: principal.clone(),
            server: target.name.clone(),
            host: target.host.clone(),
            place,
            phase: watch::Sender::new(LoginPhase::Preparing),
            redirect: Mutex::default(),
            browser: Mutex::default(),
            servers: Mutex::default(),
        }
    }

    /// Returns the URL for the user; `None` after the end of the login.
    pub(super) fn url(&self) -> Option<String> {
        match (&*self.phase.borrow(), &self.place) {
            (LoginPhase::Waiting(url), LoginPlace::Loopback) => Some(url.to_string()),
            (LoginPhase::Waiting(_), LoginPlace::Pages { base }) => {
                Some(format!("{base}{LOGIN_PATH}?id={}", self.id))
            }
            (LoginPhase::Waiting(_), LoginPlace::Nowhere)
            | (LoginPhase::Preparing | LoginPhase::Finished | LoginPhase::Failed(_), _) => None,
        }
    }

    /// Returns true if browsers reach the pages of this login only over TLS.
    pub(super) fn is_secure(&self) -> bool {
        matches!(&self.place, LoginPlace::Pages { base } if base.starts_with("https://"))
    }

    async fn run(self: Arc<Self>, logins: Weak<UpstreamLogins>, target: LoginTarget) {
        let late = || format!("the login was not completed within {} minutes", LOGIN_WAIT.as_secs() / 60);
        let logging_in = timeout(LOGIN_WAIT, log_in(Arc::clone(&self), &target));
        let phase = match logging_in.await.unwrap_or_else(|_| Err(late())) {
            Ok(()) => {
                self.start_servers().await;
                LoginPhase::Finished
            }
            Err(reason) => LoginPhase::Failed(reason),
        };
        self.phase.send_replace(phase);
        if let Some(logins) = logins.upgrade() {
            logins.remove(&self.id);
        }
    }

    /// Starts this server after the login, so that its tools appear.
    fn start_later(&self, server: &Arc<SupervisedServer>) {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|known| known.strong_count() > 0);
        if !servers.iter().any(|known| known.ptr_eq(&Arc::downgrade(server))) {
            servers.push(Arc::downgrade(server));
        }
    }

    async fn start_servers(&self) {
        let servers = std::mem::take(&mut *self.servers.lock().unwrap_or_else(PoisonError::into_inner));
        for server in servers.iter().filter_map(Weak::upgrade) {
            // The next call reports the reason if the server does not start.
            let _ = server.start().await;
        }
    }

    fn authorization_url(&self) -> Option<Url> {
        match &*self.phase.borrow() {
            LoginPhase::Waiting(url) => Some(url.clone()),
            LoginPhase::Preparing | LoginPhase::Finished | LoginPhase::Failed(_) => None,
        }
    }

    /// Returns the phase at the end of the login, or after `wait`.
    pub(super) async fn ended_within(&self, wait: Duration) -> LoginPhase {
        let mut phase = self.phase.subscribe();
        let ended = timeout(wait, phase.wait_for(LoginPhase::has_ended)).await;
        match ended {
            Ok(Ok(phase)) => phase.clone(),
            Ok(Err(_)) | Err(_) => self.phase.borrow().clone(),
        }
    }

    /// Binds the login to a browser in which the principal has identified itself. Returns the secret for the browser and
    /// the authorization URL; `None` if the user can no longer log in.
    pub(super) fn bind_browser(&self) -> Option<(String, Url)> {
        let url = self.authorization_url()?;
        let secret = random();
        *self.browser.lock().unwrap_or_else(PoisonError::into_inner) = Some(Digest::of_text(&secret));
        Some((secret, url))
    }

    /// Returns the name of the cookie with the secret of the browser.
    pub(super) fn cookie_name(&self) -> String {
        format!("haft_login_{}", self.id.get(..16).unwrap_or_default())
    }

    /// Continues the login with the redirect from a browser. Without the browser check, an attacker could begin a login,
    /// make another person complete it, and then use that person's account.
    pub(super) fn redirected(&self, secret: Option<&str>, url: Url) -> Result<(), RedirectRefusal> {
        let browser = *self.browser.lock().unwrap_or_else(PoisonError::into_inner);
        if browser.is_none() || browser != secret.map(Digest::of_text) {
            return Err(RedirectRefusal::OtherBrowser);
        }
        let waiting = self.redirect.lock().unwrap_or_else(PoisonError::into_inner).take();
        waiting.and_then(|waiting| waiting.send(url).ok()).ok_or(RedirectRefusal::Used)
    }
}

async fn log_in(login: Arc<PendingLogin>, target: &LoginTarget) -> Result<(), String> {
    let consent: Arc<dyn OauthConsent> = match login.place.clone() {
        LoginPlace::Loopback => {
            let opened = LoopbackRedirect::open(target.redirect_port).await;
            let port =
                opened.map_err(|error| format!("haft cannot open a local port for the login: {error}"))?;
            Arc::new(LoopbackConsent { login, port })
        }
        LoginPlace::Pages { base } => {
            Arc::new(PageConsent { login, redirect_uri: format!("{base}{CALLBACK_PATH}") })
        }
        LoginPlace::Nowhere => {
            return Err(
                "a login needs the address of this server; its operator must set `serve.publicUrl`".into()
            );
        }
    };
    match target.authorizer(consent)?.login().await {
        Ok(()) | Err(AuthError::NotNeeded) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends the user directly to the authorization server. The redirect reaches only a browser on this machine.
struct LoopbackConsent {
    login: Arc<PendingLogin>,
    port: LoopbackRedirect,
}

impl OauthConsent for LoopbackConsent {
    fn redirect_uri(&self) -> String {
        self.port.redirect_uri()
    }

    fn ask<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Url, String>> {
        let state = login_state(url).unwrap_or_default();
        self.login.phase.send_replace(LoginPhase::Waiting(url.clone()));
        Box::pin(async move { Ok(self.port.redirected(&state).await) })
    }
}

/// Sends the user to a page of this server, which first authenticates the user.
struct PageConsent {
    login: Arc<PendingLogin>,
    redirect_uri: String,
}

impl OauthConsent for PageConsent {
    fn redirect_uri(&self) -> String {
        self.redirect_uri.clone()
    }

    fn ask<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Url, String>> {
        let (send, redirected) = oneshot::channel();
        *self.login.redirect.lock().unwrap_or_else(PoisonError::into_inner) = Some(send);
        self.login.phase.send_replace(LoginPhase::Waiting(url.clone()));
        Box::pin(async move { redirected.await.map_err(|_| "the login was cancelled".to_owned()) })
    }
}

/// Returns 244 random bits in characters that need no escaping.
fn random() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

#[cfg(test)]
pub(super) mod tests {
    use haft_config::ConfigSources;
    use haft_core::home::Home;
    use haft_testkit::AccountServer;

    use super::*;

    /// Returns the login target of a principal at a server that requires a login.
    fn target(server: &AccountServer, home: &std::path::Path, principal: &Principal) -> LoginTarget {
        let file = home.join("haft.json");
        let text = format!(r#"{{"mcpServers": {{"far": {{"url": "{}"}}}}}}"#, server.url());
        std::fs::write(&file, text).unwrap();
        let sources = ConfigSources { home: None, project: None, named: Some(&file) };
        let config = haft_config::load(sources, &|_| None).unwrap().resolved;
        LoginTarget::all(&config, &Home::at(home), principal).remove(0)
    }

    fn pages() -> Arc<UpstreamLogins> {
        UpstreamLogins::new(LoginPlace::Pages { base: "http://127.0.0.1:1".into() })
    }

    /// Begins a login that waits for its user.
    pub(in crate::mcp) async fn begun_login(
        server: &AccountServer,
        home: &std::path::Path,
    ) -> (Arc<UpstreamLogins>, Arc<PendingLogin>) {
        let principal = Principal::new("acme", "anna", "key_1");
        let (logins, target) = (pages(), target(server, home, &principal));
        let login = logins.find_or_start(&target, &principal).unwrap();
        waiting(&login).await;
        (logins, login)
    }

    async fn waiting(login: &PendingLogin) -> Url {
        let mut phase = login.phase.subscribe();
        let phase = phase.wait_for(|phase| *phase != LoginPhase::Preparing).await.unwrap().clone();
        let LoginPhase::Waiting(url) = phase else { unreachable!("{phase:?}") };
        url
    }

    fn redirect(authorization: &Url) -> Url {
        let state = login_state(authorization).unwrap();
        Url::parse(&format!("http://127.0.0.1:1{CALLBACK_PATH}?code=c&state={state}")).unwrap()
    }

    #[tokio::test]
    async fn reload_changes_the_address_of_later_logins_only() {
        let (server, home) = (AccountServer::start(), tempfile::tempdir().unwrap());
        let (logins, login) = begun_login(&server, home.path()).await;
        logins.set_place(LoginPlace::Pages { base: "https://haft.example.com".into() });
        assert!(login.url().unwrap().starts_with("http://127.0.0.1:1/") && !login.is_secure());
        let principal = Principal::new("acme", "bert", "key_2");
        let target = target(&server, home.path(), &principal);
        let later = logins.find_or_start(&target, &principal).unwrap();
        waiting(&later).await;
        assert!(later.url().unwrap().starts_with("https://haft.example.com/mcp/login?id="));
        assert!(later.is_secure());
    }

    #[tokio::test]
    async fn login_is_valid_once_in_one_browser_and_for_a_limited_time() {
        let (server, home) = (AccountServer::start(), tempfile::tempdir().unwrap());
        let principal = Principal::new("acme", "anna", "key_1");
        let (logins, target) = (pages(), target(&server, home.path(), &principal));
        let login = logins.find_or_start(&target, &principal).unwrap();
        let url = waiting(&login).await;
        assert_eq!(
            login.redirected(None, redirect(&url)),
            Err(RedirectRefusal::OtherBrowser),
            "before the principal has identified itself, no browser can complete the login"
        );
        let (old, _) = login.bind_browser().unwrap();
        let (secret, _) = login.bind_browser().unwrap();
        for wrong in [None, Some(""), Some("x"), Some(old.as_str())] {
            assert_eq!(
                login.redirected(wrong, redirect(&url)),
                Err(RedirectRefusal::OtherBrowser),
                "{wrong:?}"
            );
        }
        let state = login_state(&url).unwrap();
        assert!(logins.find_by_state(&state).is_some() && logins.find_by_state("x").is_none());
        tokio::time::pause();
        tokio::time::advance(LOGIN_WAIT).await;
        let ended = login.ended_within(LOGIN_WAIT).await;
        assert!(matches!(&ended, LoginPhase::Failed(reason) if reason.contains("10 minutes")), "{ended:?}");
        assert_eq!(login.redirected(Some(&secret), redirect(&url)), Err(RedirectRefusal::Used));
        let again = logins.find_or_start(&target, &principal).unwrap();
        assert_ne!(again.id, login.id, "an expired login is not found again");
    }

    #[tokio::test]
    async fn number_of_open_logins_is_limited_for_each_principal_and_in_total() {
        let (server, home) = (AccountServer::start(), tempfile::tempdir().unwrap());
        let logins = pages();
        let start = |subject: usize, name: usize| {
            let principal = Principal::new("acme", subject.to_string(), "key_1");
            let mut target = target(&server, home.path(), &principal);
            target.name = format!("far{name}");
            logins.find_or_start(&target, &principal)
        };
        for name in 0..LOGINS_PER_PRINCIPAL_MAX {
            assert!(start(0, name).is_ok());
        }
        assert!(start(0, 0).is_ok(), "an open login is found again");
        assert!(start(0, LOGINS_PER_PRINCIPAL_MAX).unwrap_err().contains("too many logins"));
        for subject in 1..LOGINS_MAX / LOGINS_PER_PRINCIPAL_MAX {
            for name in 0..LOGINS_PER_PRINCIPAL_MAX {
                assert!(start(subject, name).is_ok());
            }
        }
        assert!(start(LOGINS_MAX, 0).unwrap_err().contains("too many logins"));
        logins.close();
        assert!(start(LOGINS_MAX, 0).is_ok());
    }

    #[test]
    fn principal_logs_in_only_at_servers_where_it_has_an_account() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("haft.json");
        let servers = r#"{"mcpServers": {
            "own": {"url": "https://a.example/mcp"},
            "shared": {"url": "https://b.example/mcp", "oauth": {"account": "operator"}},
            "robot": {"url": "https://c.example/mcp", "oauth": {"grant": "clientCredentials", "clientId": "c", "clientSecret": "s"}},
            "keyed": {"url": "https://d.example/mcp", "headers": {"authorization": "Bearer t"}},
            "socket": {"url": "wss://e.example/mcp"},
            "process": {"command": "x"}
        }}"#;
        std::fs::write(&file, servers).unwrap();
        let sources = ConfigSources { home: None, project: None, named: Some(&file) };
        let config = haft_config::load(sources, &|_| None).unwrap().resolved;
        let check = |principal: &Principal, expected: &[&str]| {
            let found = LoginTarget::all(&config, &Home::at(home.path()), principal);
            assert_eq!(found.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), expected);
        };
        check(&Principal::local(), &["own", "shared"]);
        check(&Principal::new("acme", "anna", "key_1"), &["own"]);
    }
}
