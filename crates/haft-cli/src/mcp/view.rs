//! The tools that clients of the gateway see: the options of the command, narrowed by the profiles of the configuration.

use std::collections::BTreeMap;

use haft_config::ResolvedConfig;
use haft_config::resolved::{GatewayListing, GatewayProfileSettings};
use haft_core::glob::ToolGlob;
use haft_core::name::GroupName;
use haft_engine::{ToolFilter, ToolFilterItem};
use haft_runtime::governor::EffectExposure;
use haft_server::mcp::{GatewayProfile, ListedTools, SearchSettings, ToolView};

use super::super::cli_error::CliError;
use super::args::{ListForm, McpServeArgs};

/// A selection of tools, and the form of their list.
#[derive(Debug, Clone)]
pub(crate) struct ViewSettings {
    selection: ToolFilter,
    pub(super) exposure: EffectExposure,
    listing: GatewayListing,
}

impl ViewSettings {
    /// Returns the view of all active tools.
    pub(crate) fn everything() -> Self {
        Self { selection: ToolFilter::All, exposure: EffectExposure::All, listing: GatewayListing::All }
    }

    /// Returns the view that the options of the command select.
    pub(super) fn of_options(args: &McpServeArgs) -> Result<Self, CliError> {
        Ok(Self {
            selection: selection(args)?,
            exposure: if args.read_only { EffectExposure::ReadOnly } else { EffectExposure::All },
            listing: match args.expose {
                ListForm::All => GatewayListing::All,
                ListForm::Search => GatewayListing::Search,
            },
        })
    }

    /// Returns the view of the tools that are in this view and in a profile of the configuration.
    pub(super) fn narrowed_by_name(&self, name: &str, config: &ResolvedConfig) -> Result<Self, CliError> {
        let profiles = &config.gateway.profiles;
        let unknown = || {
            let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let message =
                format!("there is no profile `{name}`; `gateway.profiles` in haft.json has {known}");
            CliError::usage(message)
        };
        profiles.get(name).map(|profile| self.narrowed(profile)).ok_or_else(unknown)
    }

    /// Returns all profiles of the configuration, narrowed to the tools of this view.
    pub(super) fn profiles(&self, config: &ResolvedConfig) -> BTreeMap<String, GatewayProfile> {
        let profile = |(name, settings): (&String, &GatewayProfileSettings)| {
            let view = self.narrowed(settings).view(config);
            (name.clone(), GatewayProfile { view, clients: settings.clients.clone() })
        };
        config.gateway.profiles.iter().map(profile).collect()
    }

    /// Returns the view for the gateway. The patterns of `alwaysShow` apply as in runs.
    pub(super) fn view(&self, config: &ResolvedConfig) -> ToolView {
        let listed = match self.listing {
            GatewayListing::All => ListedTools::All,
            GatewayListing::Search => ListedTools::Search(SearchSettings {
                always_show: config.tool_search.always_show.clone(),
                lock: config.tool_lock.clone(),
            }),
        };
        let instructions = Some(instructions(self.listing).to_owned());
        ToolView { selection: self.selection.clone(), listed, instructions }
    }

    /// Returns the view of the tools that are in this view and in a profile.
    fn narrowed(&self, profile: &GatewayProfileSettings) -> Self {
        let exposure = if profile.read_only { EffectExposure::ReadOnly } else { self.exposure };
        let listing = match profile.listing {
            GatewayListing::Search => GatewayListing::Search,
            GatewayListing::All => self.listing,
        };
        Self { selection: self.selection.clone().and(profile_selection(profile)), exposure, listing }
    }
}

/// Returns the instructions for the model of the client.
fn instructions(listing: GatewayListing) -> &'static str {
    match listing {
        GatewayListing::All => {
            "This server offers the tools of several MCP servers. Each tool name begins with a server name. \
             A result that is too large is stored: query it with `tool_output` and the handle in the result."
        }
        GatewayListing::Search => {
            "This server offers the tools of several MCP servers, but does not list them. Find a tool with \
             `tool_search`, read its definition with `tool_describe`, and call it with `tool_call`. A result that is \
             too large is stored: query it with `tool_output` and the handle in the result."
        }
    }
}

fn profile_selection(profile: &GatewayProfileSettings) -> ToolFilter {
    let Some(selected) = &profile.selected else { return ToolFilter::All };
    let groups = selected.groups.iter().cloned().map(ToolFilterItem::Group);
    ToolFilter::of(groups.chain(selected.tools.iter().cloned().map(ToolFilterItem::Tool)))
}

/// Returns the tools that the options select. Without such an option, these are all active tools.
fn selection(args: &McpServeArgs) -> Result<ToolFilter, CliError> {
    let group =
        |name: &String| GroupName::new(name).map(ToolFilterItem::Group).map_err(|error| error.to_string());
    let tool =
        |glob: &String| ToolGlob::new(glob).map(ToolFilterItem::Tool).map_err(|error| error.to_string());
    let items: Result<Vec<_>, String> =
        args.group.iter().map(group).chain(args.tools.iter().map(tool)).collect();
    let items = items.map_err(CliError::usage)?;
    Ok(if items.is_empty() { ToolFilter::All } else { ToolFilter::of(items) })
}
