use haft_core::home::Home;

use super::*;

fn step_names(steps: &[MountStep]) -> Vec<String> {
    steps
        .iter()
        .filter(|step| !step.path().starts_with("/dev") && !step.path().starts_with("/proc"))
        .map(|step| {
            let kind = match step {
                MountStep::Processes => "processes",
                MountStep::Writable(_) => "writable",
                MountStep::Frozen(_) => "frozen",
                MountStep::Device(_) => "device",
                MountStep::Scratch(_) => "scratch",
                MountStep::Private { .. } => "private",
                MountStep::HiddenFile(_) => "hidden-file",
                MountStep::HiddenSocket(_) => "hidden-socket",
                MountStep::HiddenDirectory { .. } => "hidden",
            };
            format!("{kind} {}", step.path().display())
        })
        .collect()
}

struct PlanFixture {
    dir: tempfile::TempDir,
}

impl PlanFixture {
    fn new(directories: &[&str]) -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        for name in directories {
            std::fs::create_dir_all(place.path(name)).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn policy(&self, workspace: &str, home: &str) -> SandboxPolicy {
        SandboxPolicy::new(SandboxMode::Workspace, &self.path(workspace), &Home::at(&self.path(home)), None)
            .unwrap()
    }
}

#[test]
fn home_below_tmp_is_hidden_and_its_parents_are_mount_points() {
    let place = PlanFixture::new(&["a/home/workspace", "ws"]);
    let plan = SandboxPlan::of(&place.policy("ws", "a/home")).unwrap();
    let names = step_names(&plan.steps);
    let position = |name: String| {
        names.iter().position(|found| *found == name).unwrap_or_else(|| panic!("{name} in {names:?}"))
    };
    let tmp = position("writable /tmp".into());
    let pin = position(format!("writable {}", place.path("a").display()));
    let home = position(format!("hidden {}", place.path("a/home").display()));
    assert!(tmp < pin && pin < home);
    let kept = plan.steps.iter().find_map(|step| match step {
        MountStep::HiddenDirectory { path, keep } if *path == place.path("a/home") => Some(keep.clone()),
        _ => None,
    });
    assert_eq!(kept, Some(vec![VisibleEntry { name: "workspace".into(), writable: true }]));
}

#[test]
fn workspace_below_home_is_mounted_last_and_writable() {
    let place = PlanFixture::new(&["home/workspace/w", "home/data"]);
    let plan = SandboxPlan::of(&place.policy("home/workspace/w", "home")).unwrap();
    let names = step_names(&plan.steps);
    let workspace = format!("writable {}", place.path("home/workspace/w").display());
    assert_eq!(names.last(), Some(&workspace), "{names:?}");
    assert!(
        !names.iter().any(|name| name.ends_with("home/data")),
        "`home/data` is hidden with home, not separately: {names:?}"
    );
}

#[test]
fn hide_neighbours_hides_all_other_workspaces() {
    let place =
        PlanFixture::new(&["home/workspace/acme/anna", "home/workspace/acme/bert", "home/workspace/b"]);
    let policy = place.policy("home/workspace/acme/anna", "home").hide_neighbours();
    let plan = SandboxPlan::of(&policy).unwrap();
    let kept = plan.steps.iter().find_map(|step| match step {
        MountStep::HiddenDirectory { keep, .. } => Some(keep.clone()),
        _ => None,
    });
    assert_eq!(kept, Some(vec![VisibleEntry { name: "workspace/acme/anna".into(), writable: true }]));
    for neighbour in ["home/workspace/acme/bert", "home/workspace/b"].map(|name| place.path(name)) {
        assert!(plan.hidden.contains(&neighbour), "{neighbour:?} in {:?}", plan.hidden);
    }
    assert!(!plan.hidden.contains(&place.path("home/workspace/acme")));
    let blocked = |name: &str| crate::check::is_read_blocked(&place.path(name), &policy);
    assert!(blocked("home/workspace/acme/bert/x") && blocked("home/workspace/later/x"));
    assert!(!blocked("home/workspace/acme/anna/x"));
}

#[test]
fn policy_with_a_named_socket_covers_the_other_sockets() {
    let place = PlanFixture { dir: tempfile::tempdir_in("/var/tmp").unwrap() };
    for name in ["user/.haft", "project"] {
        std::fs::create_dir_all(place.path(name)).unwrap();
    }
    let sockets = ["named", "other"].map(|name| place.path(name));
    let _listeners = sockets.each_ref().map(|socket| std::os::unix::net::UnixListener::bind(socket).unwrap());
    let covers = |policy: &SandboxPolicy| {
        let plan = SandboxPlan::of(policy).unwrap();
        let hidden = |socket: &PathBuf| plan.steps.contains(&MountStep::HiddenSocket(socket.clone()));
        (plan.needs_mounts(), hidden(&sockets[0]), hidden(&sockets[1]))
    };
    let policy = place.policy("project", "user/.haft");
    assert_eq!(covers(&policy), (false, false, false), "seccomp already refuses all sockets");
    let named = policy.clone().socket(&sockets[0]).unwrap();
    assert_eq!(covers(&named), (true, false, true));
    assert_eq!(covers(&named.unix_sockets(ResourceAccess::Allow)), (false, false, false));
    assert!(policy.socket(&place.path("user/.haft/data/socket")).is_err(), "haft's home stays hidden");
}

#[test]
fn private_policy_hides_tmp_and_home_except_its_own_directories() {
    let place = PlanFixture { dir: tempfile::tempdir_in("/var/tmp").unwrap() };
    for name in [
        "user/.haft/workspace/anna",
        "user/.haft/workspace/bert",
        "user/.haft/skills",
        "user/.haft/agents",
        "user/more",
    ] {
        std::fs::create_dir_all(place.path(name)).unwrap();
    }
    let policy = place.policy("user/.haft/workspace/anna", "user/.haft");
    let policy = policy.hide_neighbours().writable(&place.path("user/more")).unwrap();
    let policy = policy.private_tmp(&place.path("user/.haft/tmp/anna")).unwrap();
    let policy = policy.cover_home(&place.path("user"));
    let plan = SandboxPlan::of(&policy).unwrap();
    assert!(plan.needs_mounts());
    let names = step_names(&plan.steps);
    assert!(names.contains(&"private /tmp".to_owned()), "{names:?}");
    assert!(!names.contains(&"writable /tmp".to_owned()), "{names:?}");
    let [kept] = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            MountStep::HiddenDirectory { path, keep } if is_within(path, &place.path("user")) => Some(keep),
            _ => None,
        })
        .collect::<Vec<_>>()
        .try_into()
        .unwrap();
    let kept: Vec<(&str, bool)> = kept.iter().map(|kept| (kept.name.as_str(), kept.writable)).collect();
    assert_eq!(
        kept,
        [(".haft/skills", false), (".haft/workspace/anna", true), ("more", true)],
        "one hidden directory covers the whole home, with the operator's agents"
    );
    let blocked = |name: &str| crate::check::is_read_blocked(&place.path(name), &policy);
    assert!(
        blocked("user/notes") && blocked("user/.haft/workspace/bert/x") && blocked("user/.haft/tmp/anna")
    );
    assert!(!blocked("user/more/x") && !blocked("user/.haft/workspace/anna/x") && !blocked("elsewhere"));
}

#[test]
fn directory_in_tmp_is_refused_where_tmp_is_private() {
    let place = PlanFixture { dir: tempfile::tempdir_in("/tmp").unwrap() };
    std::fs::create_dir_all(place.path("ws")).unwrap();
    std::fs::create_dir_all(place.path("home")).unwrap();
    let error = place.policy("ws", "home").private_tmp(&place.path("home/tmp")).unwrap_err();
    assert_eq!(error, crate::policy::PolicyError::InPrivateTmp { path: place.path("ws") });
}

#[test]
fn missing_home_below_tmp_is_an_error() {
    let place = PlanFixture::new(&["ws"]);
    let error = SandboxPlan::of(&place.policy("ws", "home")).unwrap_err();
    assert_eq!(error, PlanError::NameUnprotected { path: place.path("home") });
}

#[test]
fn blocklist_overrides_a_writable_grant() {
    let found = blocked_within(&[PathBuf::from("/")]);
    assert!(found.contains(&PathBuf::from("/etc")) && found.contains(&PathBuf::from("/dev")));
    assert_eq!(blocked_within(&[PathBuf::from("/etc/app")]), [PathBuf::from("/etc/app")]);
    assert!(blocked_within(&[PathBuf::from("/srv")]).is_empty());
}

#[test]
fn full_mode_pins_the_parents_of_blocklisted_paths() {
    let place = PlanFixture::new(&["ws", "home"]);
    let policy =
        SandboxPolicy::new(SandboxMode::Full, &place.path("ws"), &Home::at(&place.path("home")), None)
            .unwrap();
    let names = step_names(&SandboxPlan::of(&policy).unwrap().steps);
    let position = |name: &str| names.iter().position(|found| found == name);
    assert!(position("writable /usr").unwrap() < position("frozen /usr/bin").unwrap(), "{names:?}");
    assert!(position("frozen /etc").is_some() && position("writable /etc").is_none());
    assert!(
        position("writable /").is_none(),
        "the root is not writable, because a link in it could be replaced"
    );
}
