//! Detects agents that would call each other forever.

use std::collections::{BTreeMap, BTreeSet};

/// The agents that each agent may call or hand off to.
pub type AgentLinks = BTreeMap<String, Vec<String>>;

/// A cycle of agents, in which each agent can call or hand off to the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("agents call each other in a cycle: {}; remove one of these calls", .path.join(" > "))]
pub struct AgentCycle {
    /// The agents of the cycle; the first and the last are the same.
    pub path: Vec<String>,
}

/// Finds the first cycle, in the order of names. Links to unknown agents are ignored.
pub fn check(links: &AgentLinks) -> Result<(), AgentCycle> {
    let mut cleared = BTreeSet::new();
    for start in links.keys() {
        walk(links, start, &mut cleared)?;
    }
    Ok(())
}

/// Follows all links from an agent. Does not recurse: the configuration determines the length of a chain, and a long
/// chain must not overflow the stack.
fn walk<'l>(
    links: &'l AgentLinks,
    start: &'l str,
    cleared: &mut BTreeSet<&'l str>,
) -> Result<(), AgentCycle> {
    let mut path: Vec<(&str, std::slice::Iter<'_, String>)> = vec![(start, links_of(links, start))];
    let mut on_path = BTreeSet::from([start]);
    while let Some((agent, next)) = path.last_mut() {
        let Some(target) = next.next() else {
            cleared.insert(*agent);
            on_path.remove(*agent);
            path.pop();
            continue;
        };
        if on_path.contains(target.as_str()) {
            let circle =
                path.iter().map(|(agent, _)| (*agent).to_owned()).skip_while(|agent| agent != target);
            return Err(AgentCycle { path: circle.chain([target.clone()]).collect() });
        }
        if !cleared.contains(target.as_str()) {
            on_path.insert(target);
            path.push((target, links_of(links, target)));
        }
    }
    Ok(())
}

fn links_of<'l>(links: &'l AgentLinks, agent: &str) -> std::slice::Iter<'l, String> {
    links.get(agent).map(Vec::as_slice).unwrap_or_default().iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(written: &[(&str, &[&str])]) -> AgentLinks {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        written.iter().map(|(agent, targets)| ((*agent).to_owned(), owned(targets))).collect()
    }

    #[test]
    fn agent_cycle_is_found_with_its_path() {
        let check = |written: &[(&str, &[&str])], expected: Option<&[&str]>| {
            let found = super::check(&links(written)).err().map(|cycle| cycle.path);
            let expected =
                expected.map(|path| path.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            assert_eq!(found, expected, "{written:?}");
        };
        check(&[], None);
        check(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["nobody"])], None);
        check(&[("a", &["a"])], Some(&["a", "a"]));
        check(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"])], Some(&["b", "c", "b"]));
    }

    #[test]
    fn cycle_check_terminates_for_long_chains_and_dense_graphs() {
        let chain: AgentLinks =
            (0..50_000).map(|n| (format!("{n:06}"), vec![format!("{:06}", n + 1)])).collect();
        assert_eq!(super::check(&chain), Ok(()));
        let net: AgentLinks =
            (0..60).map(|n| (format!("{n:02}"), (n + 1..60).map(|m| format!("{m:02}")).collect())).collect();
        assert_eq!(super::check(&net), Ok(()));
    }
}
