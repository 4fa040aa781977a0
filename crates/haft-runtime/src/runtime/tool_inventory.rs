//! The tools of a principal outside of a run, for an interface that lists them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haft_core::principal::Principal;
use haft_core::provider::ToolProvider;
use haft_engine::{OfferedTool, Orchestrator};
use haft_tools::mcp::{ElicitationSupport, LoginOffer, McpProvider, RelayedCapabilities};
use tokio::sync::OnceCell;

use super::generation::ConfigGeneration;
use super::shared_provider::SharedProvider;
use super::{Runtime, StartError};
use crate::spec::WorkspaceSpec;
use crate::wiring::{
    self, McpClientSettings, McpServers, OrchestratorOptions, OrchestratorParts, ServerPatience,
};

/// The time for which the servers of an inventory keep running after it was last used.
const INVENTORY_IDLE_MAX: Duration = Duration::from_mins(1);

/// The maximum number of inventories of a runtime. Each may run a process for every configured server.
const INVENTORIES_MAX: usize = 64;

/// All tools of the configuration as the runs of one principal see them: the built-in tools, the tools of MCP servers
/// and of HTTP APIs, without sub-agents.
pub struct ToolInventory {
    orchestrator: Orchestrator,
    servers: McpServers,
}

impl ToolInventory {
    /// Returns all tools, sorted by exposed name. For an inactive tool, `governed.activity` contains the reason.
    pub fn tools(&self) -> Vec<OfferedTool> {
        self.orchestrator.all_tools()
    }

    /// Returns the orchestrator, for decisions about the tools.
    pub fn orchestrator(&self) -> &Orchestrator {
        &self.orchestrator
    }

    /// Returns the names of the servers whose tools are not known, because they did not start or are still starting.
    pub fn unknown_servers(&self) -> Vec<String> {
        let unusable = self.servers.unusable.iter().map(|(name, _)| name.clone());
        let is_unknown = |provider: &&Arc<McpProvider>| !provider.server().is_known();
        let unknown = self.servers.providers.iter().filter(is_unknown);
        unusable.chain(unknown.map(|provider| provider.server().status().name)).collect()
    }
}

impl fmt::Debug for ToolInventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolInventory").field("orchestrator", &self.orchestrator).finish_non_exhaustive()
    }
}

/// The inventories of one generation of the configuration.
#[derive(Debug, Default)]
pub(super) struct ToolInventories(Mutex<InventoryTable>);

#[derive(Debug, Default)]
struct InventoryTable {
    entries: Vec<InventoryEntry>,
    /// True while a task waits for the idle time. There is one task for all inventories.
    is_timed: bool,
}

#[derive(Debug)]
struct InventoryEntry {
    principal: Principal,
    directory: PathBuf,
    inventory: Arc<OnceCell<Arc<ToolInventory>>>,
    last_used: Instant,
}

impl ToolInventories {
    /// Returns the cell of an inventory, which is empty on first use. The second value is an entry that was removed
    /// because the maximum was reached.
    fn cell(
        &self,
        principal: &Principal,
        directory: &Path,
    ) -> (Arc<OnceCell<Arc<ToolInventory>>>, Option<InventoryEntry>) {
        let entries = &mut self.table().entries;
        let is_it =
            |entry: &&mut InventoryEntry| entry.principal == *principal && entry.directory == *directory;
        if let Some(entry) = entries.iter_mut().find(is_it) {
            entry.last_used = Instant::now();
            return (Arc::clone(&entry.inventory), None);
        }
        let oldest = entries.iter().enumerate().min_by_key(|(_, entry)| entry.last_used).map(|(at, _)| at);
        let removed = oldest.filter(|_| entries.len() >= INVENTORIES_MAX).map(|at| entries.swap_remove(at));
        let inventory = Arc::new(OnceCell::new());
        entries.push(InventoryEntry {
            principal: principal.clone(),
            directory: directory.to_owned(),
            inventory: Arc::clone(&inventory),
            last_used: Instant::now(),
        });
        (inventory, removed)
    }

    /// Shuts down idle inventories in the background, until none is left.
    fn end_when_idle(self: &Arc<Self>) {
        if std::mem::replace(&mut self.table().is_timed, true) {
            return;
        }
        let inventories = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(INVENTORY_IDLE_MAX).await;
                inventories.close_idle(INVENTORY_IDLE_MAX).await;
                let mut table = inventories.table();
                if table.entries.is_empty() {
                    table.is_timed = false;
                    return;
                }
            }
        });
    }

    /// Shuts down the servers of all inventories that were not used for some time.
    async fn close_idle(&self, idle_max: Duration) {
        let is_idle = |entry: &mut InventoryEntry| entry.last_used.elapsed() >= idle_max;
        let idle: Vec<InventoryEntry> = self.table().entries.extract_if(.., is_idle).collect();
        for entry in idle {
            shut_down(entry).await;
        }
    }

    /// Shuts down the servers of all inventories.
    pub(super) async fn close(&self) {
        self.close_idle(Duration::ZERO).await;
    }

    fn table(&self) -> MutexGuard<'_, InventoryTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn shut_down(entry: InventoryEntry) {
    if let Some(inventory) = entry.inventory.get() {
        wiring::shut_down(&inventory.orchestrator).await;
    }
}

impl Runtime {
    /// Returns the tools of the configuration as the runs of this principal see them in this workspace. Starts the MCP
    /// servers, or joins those of runs in progress, and waits for their tools, with the same time limits as a run. The
    /// servers keep running for a minute.
    pub async fn tool_inventory(
        &self,
        principal: &Principal,
        workspace: &WorkspaceSpec,
    ) -> Result<Arc<ToolInventory>, StartError> {
        let generation = self.generation();
        let (cell, removed) = generation.inventories.cell(principal, &workspace.directory);
        if let Some(removed) = removed {
            tokio::spawn(shut_down(removed));
        }
        let build = async {
            let inventory = self.build_inventory(&generation, principal, workspace)?;
            wiring::warm_up(&inventory.orchestrator).await;
            generation.inventories.end_when_idle();
            Ok(Arc::new(inventory))
        };
        cell.get_or_try_init(|| build).await.map(Arc::clone)
    }

    fn build_inventory(
        &self,
        generation: &ConfigGeneration,
        principal: &Principal,
        workspace: &WorkspaceSpec,
    ) -> Result<ToolInventory, StartError> {
        let policy = workspace.policy_of(principal, &self.shared.home).map_err(StartError::Policy)?;
        let face = McpClientSettings {
            relayed: RelayedCapabilities::default(),
            // Use the same value as the runs of a server do, so that the inventory shares their server processes.
            elicitation: ElicitationSupport::NotOffered,
            principal: principal.clone(),
            trace: self.shared.trace.clone(),
            parents: self.shared.parents.clone(),
            shared: Arc::clone(&self.shared.servers),
            patience: ServerPatience::Run,
            login: LoginOffer::NotOffered,
        };
        let servers = wiring::mcp_servers(&generation.config, &policy, &face);
        let shared = generation.providers.iter().cloned();
        let shared = shared.map(|provider| Arc::new(SharedProvider(provider)) as Arc<dyn ToolProvider>);
        let providers = servers.providers().into_iter().chain(shared).collect();
        let config = Arc::clone(&generation.config);
        let parts = OrchestratorParts::sharing(policy, config, providers, &generation.engine);
        let orchestrator = parts.orchestrator(parts.config(), OrchestratorOptions::default());
        Ok(ToolInventory { orchestrator, servers })
    }
}
