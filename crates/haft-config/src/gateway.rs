//! Resolves the settings of the MCP gateway: the profiles, which select tools for clients.

use std::collections::BTreeMap;

use haft_core::glob::ToolGlob;
use haft_core::name::GroupName;

use super::glob::tool_glob;
use super::position::{child, item};
use super::resolve::ConfigResolver;
use super::written::{RawGateway, RawGatewayProfile};

/// The path segment below `/mcp` that the login pages use. No profile can have this name.
pub(super) const RESERVED_PROFILE: &str = "login";

/// The settings of the MCP gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewaySettings {
    /// The profiles, by name.
    pub profiles: BTreeMap<String, GatewayProfileSettings>,
}

/// One selection of tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayProfileSettings {
    /// The groups and tool patterns; `None` for all active tools.
    pub selected: Option<SelectedTools>,
    pub read_only: bool,
    pub listing: GatewayListing,
    /// Patterns for the names of the clients that get the profile.
    pub clients: Vec<ToolGlob>,
}

/// The tools that match one of the patterns or belong to one of the groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SelectedTools {
    pub groups: Vec<GroupName>,
    pub tools: Vec<ToolGlob>,
}

/// The content of the tool list that clients get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayListing {
    /// The list contains all tools that the client may call.
    All,
    /// The list contains only search tools, with which a model finds and calls the other tools.
    Search,
}

impl ConfigResolver<'_> {
    pub(super) fn gateway(&mut self, written: RawGateway) -> GatewaySettings {
        let mut profiles = BTreeMap::new();
        for (name, profile) in written.profiles.unwrap_or_default() {
            let path = child("gateway.profiles", &name);
            let profile = self.gateway_profile(&path, profile);
            profiles.insert(name, profile);
        }
        GatewaySettings { profiles }
    }

    fn gateway_profile(&mut self, path: &str, written: RawGatewayProfile) -> GatewayProfileSettings {
        let RawGatewayProfile { tools, groups, read_only, expose, clients } = written;
        let selects = tools.is_some() || groups.is_some();
        let selected = SelectedTools {
            groups: self.group_names(&child(path, "groups"), &groups.unwrap_or_default()),
            tools: self.globs(&child(path, "tools"), &tools.unwrap_or_default()),
        };
        let (clients, key) = (clients.unwrap_or_default(), child(path, "clients"));
        let clients = clients.iter().enumerate();
        GatewayProfileSettings {
            selected: selects.then_some(selected),
            read_only: read_only.unwrap_or(false),
            listing: expose.map_or(GatewayListing::All, Into::into),
            clients: clients
                .filter_map(|(index, name)| self.checked(&item(&key, index), tool_glob(&name.0)))
                .collect(),
        }
    }
}
