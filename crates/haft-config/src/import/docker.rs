//! Finds the environment variables that a container gets from the program that starts it.

use serde_json::Value;

/// The options of `docker run` without a value.
const FLAGS: [&str; 13] = [
    "--detach",
    "--disable-content-trust",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--rm",
    "--sig-proxy",
    "--tty",
];

/// The letters of the short options without a value, which may be combined as in `-it`.
const SHORT_FLAGS: [char; 5] = ['d', 'i', 'P', 'q', 't'];

/// The unix socket that the command of a container engine opens; `None` for another program.
pub(super) fn socket_of(program: &str) -> Option<&'static str> {
    match program.rsplit('/').next() {
        Some("docker") => Some("/var/run/docker.sock"),
        Some("podman") => Some("$XDG_RUNTIME_DIR/podman/podman.sock"),
        Some(_) | None => None,
    }
}

/// Returns the names of the variables that `docker run` passes on without a value, as in `-e NAME`.
pub(super) fn passed_variables(args: &[Value]) -> Vec<String> {
    let words: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    let Some(run) = words.iter().position(|word| *word == "run") else { return Vec::new() };
    let mut names = Vec::new();
    let mut rest = words[run + 1..].iter();
    while let Some(word) = rest.next() {
        if !word.starts_with('-') {
            // The image. The words after it are arguments of the program in the container.
            break;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None if is_flag(word) => continue,
            None => match word.strip_prefix("-e").filter(|name| !name.is_empty()) {
                Some(name) => ("-e", Some(name)),
                None => (*word, rest.next().copied()),
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
    fn variables_without_a_value_are_found_before_the_image() {
        let check = |line: &str, expected: &[&str]| {
            let words: Vec<Value> = line.split(' ').map(Value::from).collect();
            assert_eq!(passed_variables(&words), expected, "{line}");
        };
        check("run -i --rm -e TOKEN ghcr.io/a/b", &["TOKEN"]);
        check("run -it --env A --env=B -eC -e D=1 --env=E=2 -eF=3 image -e G", &["A", "B", "C"]);
        check("--context x run --name -e -v /a:/b -p 1:2 -e A image", &["A"]);
        check("exec -e A box", &[]);
        check("run -e", &[]);
    }
}
