use super::*;

struct PolicyFixture {
    dir: tempfile::TempDir,
}

impl PolicyFixture {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["user/project", "user/.ssh", "user/.haft/workspace/w", "user/.haft/data"] {
            std::fs::create_dir_all(place.path(name)).unwrap();
        }
        std::fs::write(place.path("user/file"), "").unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn policy(&self, workspace: &str) -> Result<SandboxPolicy, PolicyError> {
        let home = Home::at(&self.path("user/.haft"));
        SandboxPolicy::new(SandboxMode::Workspace, &self.path(workspace), &home, Some(&self.path("user")))
    }
}

#[test]
fn project_and_haft_workspace_directories_are_accepted() {
    let place = PolicyFixture::new();
    assert!(place.policy("user/project").is_ok());
    assert!(place.policy("user/.haft/workspace").is_ok());
    assert!(place.policy("user/.haft/workspace/w").is_ok());
}

#[test]
fn workspace_that_exposes_home_or_a_secret_is_refused() {
    let place = PolicyFixture::new();
    let exposes_home = |workspace: &str| {
        assert!(matches!(place.policy(workspace), Err(PolicyError::ExposesHome { .. })), "{workspace}");
    };
    exposes_home("user");
    exposes_home("user/.haft");
    exposes_home("user/.haft/data");
    assert!(matches!(place.policy("user/.ssh"), Err(PolicyError::ExposesSecret { .. })));
    assert_eq!(
        SandboxPolicy::new(SandboxMode::Full, Path::new("/"), &Home::at(&place.path("h")), None),
        Err(PolicyError::WholeFileSystem)
    );
}

#[test]
fn allowed_home_is_a_workspace_with_its_secrets_hidden() {
    let place = PolicyFixture::new();
    let (home, user) = (Home::at(&place.path("user/.haft")), place.path("user"));
    let allowed = |workspace: &Path| {
        SandboxPolicy::new_allowing_home(SandboxMode::Workspace, workspace, &home, Some(&user), &[])
    };
    let policy = allowed(&user).unwrap();
    assert!(policy.hidden().contains(&place.path("user/.ssh")) && policy.hidden().contains(&home.data()));
    let server = policy.derive(SandboxMode::Network, &user).unwrap();
    assert!(
        server.hidden().contains(&place.path("user/.ssh")),
        "a server in the same directory cannot read the secret"
    );
    assert!(policy.writable(user.parent().unwrap()).is_err());
    for refused in ["", "user/.haft", "user/.ssh"] {
        assert!(allowed(&place.path(refused)).is_err(), "{refused}");
    }
    assert_eq!(allowed(Path::new("/")), Err(PolicyError::WholeFileSystem));
}

#[test]
fn symlink_to_home_is_treated_as_home() {
    let place = PolicyFixture::new();
    std::os::unix::fs::symlink(place.path("user"), place.path("alias")).unwrap();
    assert!(matches!(place.policy("alias"), Err(PolicyError::ExposesHome { .. })));
}

#[test]
fn missing_workspace_and_non_directory_are_distinct_errors() {
    let place = PolicyFixture::new();
    assert!(matches!(place.policy("nowhere"), Err(PolicyError::Missing { .. })));
    assert!(matches!(place.policy("user/file"), Err(PolicyError::NotADirectory { .. })));
}

#[test]
fn additional_writable_directories_may_not_expose_home() {
    let place = PolicyFixture::new();
    let policy = place.policy("user/project").unwrap();
    assert!(policy.clone().writable(&place.path("user/.haft/data")).is_err());
    assert!(policy.clone().writable(Path::new("/")).is_err());
    assert!(policy.writable(&place.path("user/.haft/workspace")).is_ok());
}

#[test]
fn readable_setting_unhides_a_secret_but_never_haft_data() {
    let place = PolicyFixture::new();
    let policy = place.policy("user/project").unwrap();
    assert!(policy.hidden().contains(&place.path("user/.ssh")));
    let wider = policy.clone().readable(&place.path("user/.ssh")).unwrap();
    assert!(!wider.hidden().contains(&place.path("user/.ssh")));
    assert!(policy.readable(&place.path("user/.haft/data")).is_err());
}
