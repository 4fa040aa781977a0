//! Gives every tool a unique name. A name depends on the set of tools, never on their order.

use std::collections::HashMap;

use crate::digest::Digest;
use crate::name::{NAME_CHARS_MAX, ToolName};

/// A tool that needs a name.
#[derive(Debug, Clone)]
pub struct NameRequest {
    /// The requested name without a suffix.
    pub plain: ToolName,
    /// Distinguishes the tool from all others. The suffix is a digest of this key.
    pub key: String,
    /// The form of the name to try first.
    pub first: NameForm,
}

/// The form of a tool name: plain, or with a digest as a suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameForm {
    /// The plain name, if no other tool requests it.
    Plain,
    /// The plain name with a digest as a suffix, because the plain name belongs to another tool.
    Suffixed,
}

/// Returns a name for each request. All names differ, and none is one of the reserved names.
///
/// If several tools request the same plain name, all of them get a suffix. If one of them kept the plain name, its name
/// would depend on the others, and in the next process the name could refer to a different tool. A suffixed name has
/// priority over a plain name, so no tool can take over another tool's name by choosing a name with that suffix.
pub fn distinct_names<'a>(
    reserved: impl IntoIterator<Item = &'a ToolName>,
    requests: &[NameRequest],
) -> Vec<ToolName> {
    let claims = reserved.into_iter().map(|name| (name.clone(), NameClaim::Reserved)).collect();
    let mut contest = NameContest { requests, claims, names: Vec::new() };
    contest.names = requests.iter().map(|request| request.plain.clone()).collect();
    for (index, request) in requests.iter().enumerate() {
        let level = match request.first {
            NameForm::Plain => 0,
            NameForm::Suffixed => 1,
        };
        contest.enter(NameBid { index, level });
    }
    contest.names
}

/// The number of hexadecimal digits in the first suffix. Each level adds 8 digits, up to `SUFFIX_DIGITS_MAX`. With 32
/// digits (128 bits), an attacker cannot construct two tools with the same suffix.
const SUFFIX_DIGITS: usize = 8;
const SUFFIX_DIGITS_MAX: usize = 32;

/// A name request of one tool at one level. At level 0 the tool requests its plain name; at each further level it
/// requests a name with a longer suffix.
#[derive(Debug, Clone, Copy)]
struct NameBid {
    index: usize,
    level: usize,
}

/// The state of one name. A state can only become stricter, so the order of the bids has no effect on the outcome.
#[derive(Debug, Clone, Copy)]
enum NameClaim {
    Reserved,
    Held(NameBid),
    /// Two requests at this level bid for the name, so no request at this level or below gets it.
    Contested(usize),
}

struct NameContest<'a> {
    requests: &'a [NameRequest],
    claims: HashMap<ToolName, NameClaim>,
    names: Vec<ToolName>,
}

impl NameContest<'_> {
    /// Adds a bid, and moves every request that loses its name to its next level.
    fn enter(&mut self, bid: NameBid) {
        let mut open = vec![bid];
        while let Some(bid) = open.pop() {
            let name = self.requests[bid.index].name_at(bid.level);
            self.names[bid.index] = name.clone();
            let held = self.claims.get(&name).copied();
            let (claim, losers) = decide(held, bid);
            self.claims.insert(name, claim);
            let next = |loser: NameBid| NameBid { level: loser.level + 1, ..loser };
            open.extend(losers.into_iter().flatten().map(next));
        }
    }
}

/// Returns the next state of a name, and the bids that lose it.
fn decide(held: Option<NameClaim>, bid: NameBid) -> (NameClaim, [Option<NameBid>; 2]) {
    match held {
        None => (NameClaim::Held(bid), [None, None]),
        Some(NameClaim::Reserved) => (NameClaim::Reserved, [Some(bid), None]),
        Some(NameClaim::Contested(level)) if bid.level > level => (NameClaim::Held(bid), [None, None]),
        Some(NameClaim::Contested(level)) => (NameClaim::Contested(level), [Some(bid), None]),
        Some(NameClaim::Held(other)) if bid.level > other.level => {
            (NameClaim::Held(bid), [Some(other), None])
        }
        Some(NameClaim::Held(other)) if bid.level < other.level => {
            (NameClaim::Held(other), [Some(bid), None])
        }
        Some(NameClaim::Held(other)) => (NameClaim::Contested(bid.level), [Some(other), Some(bid)]),
    }
}

impl NameRequest {
    fn name_at(&self, level: usize) -> ToolName {
        if level == 0 {
            return self.plain.clone();
        }
        let digest = Digest::of_parts([self.key.as_bytes(), &level.to_le_bytes()]).to_string();
        let digits = (SUFFIX_DIGITS * level).min(SUFFIX_DIGITS_MAX);
        let stem: String = self.plain.as_str().chars().take(NAME_CHARS_MAX - 1 - digits).collect();
        ToolName::sanitize(&format!("{stem}_{}", &digest[..digits]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(plain: &str, key: &str) -> NameRequest {
        NameRequest { plain: ToolName::new(plain).unwrap(), key: key.into(), first: NameForm::Plain }
    }

    fn names(reserved: &[&str], requests: &[NameRequest]) -> Vec<String> {
        let reserved: Vec<ToolName> = reserved.iter().map(|name| ToolName::new(name).unwrap()).collect();
        distinct_names(&reserved, requests).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tools_that_request_the_same_name_all_get_a_suffix() {
        let found = names(
            &["bash"],
            &[request("a", "1"), request("b", "2"), request("b", "3"), request("bash", "4")],
        );
        assert_eq!(found[0], "a");
        assert_eq!(found[1], request("b", "2").name_at(1).as_str());
        assert_eq!(found[2], request("b", "3").name_at(1).as_str());
        assert_eq!(found[3], request("bash", "4").name_at(1).as_str());
        assert_eq!(found[1].len(), "b_12345678".len());
        let suffixed = NameRequest { first: NameForm::Suffixed, ..request("c", "5") };
        assert_eq!(
            names(&[], &[suffixed, request("c", "6")])[1],
            "c",
            "a tool without a forced suffix gets the plain name"
        );
    }

    #[test]
    fn tool_gets_a_suffix_if_its_plain_name_equals_a_suffixed_name() {
        let wanted = request("b", "2").name_at(1);
        let found = names(&[], &[request("b", "2"), request("b", "3"), request(wanted.as_str(), "4")]);
        assert_eq!(found[0], wanted.as_str());
        assert_eq!(found[2], request(wanted.as_str(), "4").name_at(1).as_str());
    }

    #[test]
    fn long_chain_of_colliding_names_is_resolved_quickly() {
        let mut chain = vec![request("x", "a"), request("x", "b")];
        for number in 0..5_000 {
            let before = chain.last().unwrap().name_at(1);
            chain.push(request(before.as_str(), &number.to_string()));
        }
        let found: std::collections::HashSet<String> = names(&[], &chain).into_iter().collect();
        assert_eq!(found.len(), chain.len());
    }

    fn any_request() -> impl Strategy<Value = (String, NameForm)> {
        // A small alphabet makes collisions frequent.
        ("[ab]{1,2}|x{63,64}", prop::sample::select(vec![NameForm::Plain, NameForm::Suffixed]))
    }

    proptest! {
        #[test]
        fn tool_names_are_distinct_and_do_not_depend_on_the_order(
            wanted in prop::collection::vec(any_request(), 0..30),
            reserved in prop::collection::vec("[ab]{1,2}", 0..4),
            swap in any::<prop::sample::Index>(),
        ) {
            let mut requests: Vec<NameRequest> = wanted
                .iter()
                .enumerate()
                .map(|(key, (plain, first))| NameRequest { first: *first, ..request(plain, &key.to_string()) })
                .collect();
            let reserved: Vec<ToolName> = reserved.iter().map(|name| ToolName::new(name).unwrap()).collect();
            let by_key = |requests: &[NameRequest]| {
                let keys = requests.iter().map(|request| request.key.clone());
                keys.zip(distinct_names(&reserved, requests)).collect::<HashMap<_, _>>()
            };
            let before = by_key(&requests);
            let different: std::collections::HashSet<&ToolName> = before.values().collect();
            prop_assert_eq!(different.len(), requests.len());
            prop_assert!(reserved.iter().all(|name| !different.contains(name)));
            requests.reverse();
            if !requests.is_empty() {
                let at = swap.index(requests.len());
                requests.rotate_left(at);
            }
            prop_assert_eq!(before, by_key(&requests));
        }
    }
}
