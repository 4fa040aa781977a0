//! Finds models whose price is unknown but whose agent has a budget in US dollars. Such a budget would never end a run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use haft_config::ResolvedConfig;
use haft_config::agents::UnpricedModels;
use haft_config::agents::graph::{AgentGraph, AgentNode};
use haft_config::resolved::{CompactionStart, ModelName};
use haft_models::claude_code;
use haft_models::prices::Prices;
use haft_models::providers::ProviderRow;

use crate::models::{ModelsError, kind};
use crate::runs::model_names;

/// Returns an error for the first model that has no price but is limited by a budget in US dollars. The root agent's
/// setting applies to all agents: if it allows models without a price, every agent below it may use them.
pub fn check_prices(graph: &AgentGraph, config: &ResolvedConfig) -> Result<(), ModelsError> {
    if graph.first().agent.unpriced_models == UnpricedModels::Allow {
        return Ok(());
    }
    let usual = model_names(&graph.first().agent, config)?;
    for (budget_of, node) in limited(graph) {
        let names =
            if node.agent.models.is_empty() { usual.clone() } else { model_names(&node.agent, config)? };
        let readers =
            node.agent.outputs.tool_output.models.iter().filter_map(|name| ModelName::parse(name).ok());
        let summaries = node.agent.compaction.over(&config.compaction);
        let summarizer = match summaries.at {
            CompactionStart::Percent(_) => summaries.model,
            CompactionStart::Off => None,
        };
        let mut all = names.into_iter().chain(readers).chain(summarizer);
        if let Some(model) = all.find(|name| !has_price(config, name)) {
            return Err(ModelsError::NoPrice { agent: budget_of, model });
        }
    }
    Ok(())
}

/// Returns whether the cost of requests to a model is known. `claude-code` reports its cost itself.
fn has_price(config: &ResolvedConfig, name: &ModelName) -> bool {
    let kind = kind(config, &name.provider);
    if kind == claude_code::NAME {
        return true;
    }
    let own = config.models.settings.get(name).and_then(|settings| settings.price);
    let list = ProviderRow::named(kind).and_then(|row| row.price_list);
    own.is_some() || Prices::of_list(list).of(&name.model).is_some()
}

/// Returns every agent whose cost is limited by a budget in US dollars, with the name of the agent that sets the
/// budget.
fn limited(graph: &AgentGraph) -> Vec<(String, &AgentNode)> {
    let reached = reachable(graph, graph.first_file());
    let mut limited = Vec::new();
    for file in &reached {
        let Some(node) = graph.node(file).filter(|node| node.agent.budget.usd.is_some()) else { continue };
        let below = reachable(graph, file);
        let nodes = below.iter().filter_map(|file| graph.node(file));
        limited.extend(nodes.map(|below| (node.agent.name.clone(), below)));
    }
    limited
}

fn reachable(graph: &AgentGraph, from: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(file) = open.pop() {
        if let Some(AgentNode { agents, destinations, handoff, .. }) = graph.node(&file)
            && found.insert(file)
        {
            open.extend(agents.iter().chain(destinations).chain(handoff).cloned());
        }
    }
    found
}
