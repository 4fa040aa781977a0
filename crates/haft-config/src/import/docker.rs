//! Programs that start containers: their unix socket, and the environment variables that a container gets from them.

use serde_json::Value;

/// The options of `docker run` and `podman run` without a value.
const FLAGS: [&str; 24] = [
    "--detach",
    "--disable-content-trust",
    "--env-host",
    "--http-proxy",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--no-hostname",
    "--no-hosts",
    "--oom-kill-disable",
    "--passwd",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--read-only-tmpfs",
    "--replace",
    "--rm",
    "--rmi",
    "--rootfs",
    "--sig-proxy",
    "--tls-verify",
    "--tty",
    "--use-api-socket",
];

/// The letters of the short options without a value, which may be combined as in `-it`.
const SHORT_FLAGS: [char; 5] = ['d', 'i', 'P', 'q', 't'];

/// A program that starts containers through a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerEngine {
    Docker,
    Podman,
}

/// The socket of a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSocket {
    pub path: String,
    /// The environment variable with which the program finds the socket, and its value; `None` if the program needs no
    /// variable.
    pub host: Option<(&'static str, String)>,
}

impl ContainerEngine {
    /// Returns the container engine that a command starts; `None` for another program.
    pub(super) fn of(program: &str) -> Option<Self> {
        match program.rsplit('/').next() {
            Some("docker") => Some(Self::Docker),
            Some("podman") => Some(Self::Podman),
            Some(_) | None => None,
        }
    }

    /// Returns the name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// Returns the variable with which a user selects another address.
    pub fn host_variable(self) -> &'static str {
        match self {
            Self::Docker => "DOCKER_HOST",
            Self::Podman => "CONTAINER_HOST",
        }
    }

    /// Finds the socket: the one that the engine's variable names, otherwise the first existing one of the machine's
    /// socket and the user's socket (rootless). Returns `None` if the variable names another kind of address, such as
    /// `tcp://`.
    pub fn socket(
        self,
        variable: impl Fn(&str) -> Option<String>,
        exists: impl Fn(&str) -> bool,
    ) -> Option<EngineSocket> {
        let name = self.host_variable();
        if let Some(host) = variable(name).filter(|host| !host.is_empty()) {
            let path = host.strip_prefix("unix://")?.to_owned();
            return Some(EngineSocket { path, host: Some((name, host)) });
        }
        let of_user = variable("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty());
        let of_user = |socket: &str| of_user.as_ref().map(|directory| format!("{directory}/{socket}"));
        let of_machine = |path: &str| Some(path.to_owned());
        let known = match self {
            Self::Docker => [of_machine("/var/run/docker.sock"), of_user("docker.sock")],
            Self::Podman => [of_user("podman/podman.sock"), of_machine("/run/podman/podman.sock")],
        };
        let known: Vec<String> = known.into_iter().flatten().collect();
        let found = known.iter().position(|path| exists(path)).unwrap_or(0);
        let path = known.get(found)?.clone();
        // Set the variable for any path except the first one, because the program itself tries only the first path.
        let host = (found > 0).then(|| (name, format!("unix://{path}")));
        Some(EngineSocket { path, host })
    }
}

/// Returns the variables that the arguments of `docker run` name without a value, as in `-e NAME`. `docker` copies
/// their values from its own environment.
pub(super) fn passed_variables(args: &[Value]) -> Vec<String> {
    let words: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    let Some(run) = words.iter().position(|word| *word == "run") else { return Vec::new() };
    let mut names = Vec::new();
    let mut rest = words[run + 1..].iter().peekable();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') {
            // This word is the image. The words after it are arguments of the program in the container.
            break;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None if is_flag(word) => continue,
            None => match word.strip_prefix("-e").filter(|name| !name.is_empty()) {
                Some(name) => ("-e", Some(name)),
                // An option that is not in `FLAGS` has a value, unless another option follows: no value begins with a
                // dash.
                None => (*word, rest.next_if(|next| !next.starts_with('-')).copied()),
            },
        };
        if let ("-e" | "--env", Some(name)) = (option, value)
            && !name.contains('=')
        {
            names.push(name.to_owned());
        }
    }
    names
}

fn is_flag(word: &str) -> bool {
    let short = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
    FLAGS.contains(&word) || short.is_some_and(|letters| letters.chars().all(|c| SHORT_FLAGS.contains(&c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_socket_is_the_first_that_exists_unless_the_variable_names_one() {
        let check = |engine: ContainerEngine,
                     set: &[(&str, &str)],
                     present: &[&str],
                     expected: Option<(&str, bool)>| {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let found = engine.socket(variable, |path| present.contains(&path));
            let found = found.as_ref().map(|socket| (socket.path.as_str(), socket.host.is_some()));
            assert_eq!(found, expected, "{engine:?} {set:?}");
        };
        let (docker, podman) = (ContainerEngine::Docker, ContainerEngine::Podman);
        let user = ("XDG_RUNTIME_DIR", "/run/user/7");
        let of_user = "/run/user/7/docker.sock";
        check(docker, &[], &[], Some(("/var/run/docker.sock", false)));
        check(docker, &[user], &["/var/run/docker.sock", of_user], Some(("/var/run/docker.sock", false)));
        check(docker, &[user], &[of_user], Some((of_user, true)));
        check(docker, &[("DOCKER_HOST", "unix:///x/d.sock"), user], &[of_user], Some(("/x/d.sock", true)));
        check(docker, &[("DOCKER_HOST", "tcp://10.0.0.1:2376")], &[], None);
        check(podman, &[user], &[], Some(("/run/user/7/podman/podman.sock", false)));
        check(podman, &[], &[], Some(("/run/podman/podman.sock", false)));
    }

    #[test]
    fn passed_variables_are_those_without_a_value_before_the_image() {
        let check = |line: &str, expected: &[&str]| {
            let words: Vec<Value> = line.split(' ').map(Value::from).collect();
            assert_eq!(passed_variables(&words), expected, "{line}");
        };
        check("run -i --rm -e TOKEN ghcr.io/a/b", &["TOKEN"]);
        check("run -it --env A --env=B -eC -e D=1 --env=E=2 -eF=3 image -e G", &["A", "B", "C"]);
        check("--context x run --name n -v /a:/b -p 1:2 -e A image", &["A"]);
        check("run --replace -e A --rm image -e B", &["A"]);
        check("run --replace image -e A", &[]);
        check("run --new-flag -e A image", &["A"]);
        check("run --new-flag --env A image", &["A"]);
        check("exec -e A box", &[]);
        check("run -e", &[]);
    }
}
