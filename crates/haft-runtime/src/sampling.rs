//! Answers sampling requests of MCP servers with a configured model, if the operator allows it. The cost is added to
//! the call that the server works on.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use haft_core::model_provider::ModelContext;
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::{ModelRequest, PromptCaching, SamplingParameters, ToolChoice};
use haft_core::position::SessionId;
use haft_core::run::meter::{SpendAmount, SpendReservation};
use haft_sandbox::SandboxPolicy;
use haft_tools::mcp::{OriginatingCall, Sampler, SamplingReply, SamplingRequest};

use crate::models::{self, ModelProviders};
use crate::runs::Variables;
use haft_config::ResolvedConfig;
use haft_config::resolved::ModelName;

/// Answers the sampling requests of servers. The model gets no tools, and sees only the conversation that the server
/// sent.
pub struct ModelSampler {
    config: Arc<ResolvedConfig>,
    policy: SandboxPolicy,
    variables: Variables,
    providers: ModelProviders,
    /// The model for sampling requests of MCP servers whose settings name no model.
    usual: Option<ModelName>,
}

impl ModelSampler {
    /// Creates a sampler. `usual` is the model of the run; if it is `None`, the configured default model is used.
    pub fn new(
        config: &ResolvedConfig,
        policy: &SandboxPolicy,
        variables: Variables,
        usual: Option<ModelName>,
    ) -> Self {
        Self::of_run(Arc::new(config.clone()), policy, (variables, ModelProviders::default()), usual)
    }

    /// Creates the sampler of a run, with the run's configuration and the connections of its runtime.
    pub(crate) fn of_run(
        config: Arc<ResolvedConfig>,
        policy: &SandboxPolicy,
        (variables, providers): (Variables, ModelProviders),
        usual: Option<ModelName>,
    ) -> Self {
        let usual = usual.or_else(|| config.models.default.clone());
        Self { config, policy: policy.clone(), variables, providers, usual }
    }

    async fn write(
        &self,
        wanted: SamplingRequest,
        caller: &OriginatingCall,
    ) -> Result<SamplingReply, String> {
        let model = self.model(&wanted)?;
        let (request, _held) = within_budget(request(&wanted, &model), &wanted, caller)?;
        let unusable = |error: models::ModelsError| error.to_string();
        let names = std::slice::from_ref(&model);
        let Self { config, policy, variables, providers, .. } = self;
        let provider = providers.chain(Some(policy), config, names, &**variables).map_err(unusable)?;
        let mut replies = provider.ask(request, &context(caller));
        let mut fold = ReplyFold::default();
        while let Some(event) = replies.next().await {
            fold.apply(&event.map_err(|error| format!("the request to the model failed: {error}"))?);
        }
        Ok(sampled(&fold.finish(), &model))
    }

    fn model(&self, wanted: &SamplingRequest) -> Result<ModelName, String> {
        let named = wanted.model.as_deref().map(ModelName::parse).transpose()?;
        let hint = "set `sampling.model` or `models.default`";
        let model = named
            .or_else(|| self.usual.clone())
            .ok_or_else(|| format!("no model is configured for sampling; {hint}"))?;
        // A provider with its own tools could act on a server's prompt, so sampling must not use it.
        if models::has_tools_of_its_own(&self.config, &model.provider) {
            return Err(format!(
                "haft cannot use the provider `{}` for sampling, because this provider has its own tools",
                model.provider
            ));
        }
        Ok(model)
    }
}

impl Sampler for ModelSampler {
    fn sample<'a>(
        &'a self,
        wanted: SamplingRequest,
        caller: &'a OriginatingCall,
    ) -> BoxFuture<'a, Result<SamplingReply, String>> {
        Box::pin(self.write(wanted, caller))
    }
}

impl fmt::Debug for ModelSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelSampler").field("usual", &self.usual).finish_non_exhaustive()
    }
}

fn request(wanted: &SamplingRequest, model: &ModelName) -> ModelRequest {
    ModelRequest {
        system: wanted.system.as_str().into(),
        tool_choice: ToolChoice::None,
        sampling: SamplingParameters {
            temperature: wanted.temperature,
            stop: wanted.stop.clone(),
            ..SamplingParameters::default()
        },
        output_tokens_max: Some(wanted.output_tokens_max),
        // A sampling request is not repeated, so caching its prompt would only add cost.
        caching: PromptCaching::None,
        ..ModelRequest::new(model.model.clone(), Arc::new(wanted.conversation.clone()))
    }
}

/// Reserves the output tokens, limited to the remaining budget of the run. Returns an error if the run has no budget
/// left.
fn within_budget(
    mut request: ModelRequest,
    wanted: &SamplingRequest,
    caller: &OriginatingCall,
) -> Result<(ModelRequest, Option<SpendReservation>), String> {
    let Some(scope) = &caller.scope else { return Ok((request, None)) };
    let left = scope.meter.left(scope.elapsed(Instant::now()));
    if let Some(part) = left.used_up() {
        return Err(format!("the run has used all of its budget ({})", part.name()));
    }
    let tokens_left = left.tokens.map_or(u32::MAX, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
    let output = wanted.output_tokens_max.min(tokens_left);
    request.output_tokens_max = Some(output);
    Ok((request, Some(scope.meter.hold(SpendAmount { tokens: output.into(), calls: 0 }))))
}

/// Returns the model context of the sampling request: a new session below the tool call.
fn context(caller: &OriginatingCall) -> ModelContext {
    let session = SessionId(uuid::Uuid::new_v4().as_u128());
    let place = caller.place.below(session, caller.operation);
    let events = Arc::clone(&caller.events);
    ModelContext::new(format!("{session}/1"), caller.run.principal.clone(), events).at(place)
}

fn sampled(reply: &ModelReply, model: &ModelName) -> SamplingReply {
    SamplingReply {
        model: reply.model.clone().unwrap_or_else(|| model.model.clone()),
        text: reply.text(),
        stop: reply.stop.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haft_core::conversation::Conversation;
    use haft_core::event::NoEvents;
    use haft_core::position::{OperationId, RunPosition};
    use haft_core::run::budget::SpendLimit;
    use haft_core::run::meter::Meter;
    use haft_core::run::scope::RunScope;
    use haft_core::tool::CallId;

    use super::*;

    fn wanted() -> SamplingRequest {
        SamplingRequest {
            server: "s".into(),
            model: None,
            system: String::new(),
            conversation: Conversation::default(),
            output_tokens_max: 100,
            temperature: None,
            stop: Vec::new(),
        }
    }

    fn within(tokens: Option<u64>) -> Result<(Option<u32>, Option<u64>), String> {
        let meter = Meter::new(Arc::new(NoEvents), SpendLimit { tokens, ..SpendLimit::default() });
        let (began, until) = (Instant::now(), Instant::now() + Duration::from_mins(1));
        let scope = RunScope::new(Arc::clone(&meter), Vec::new(), began, until);
        let caller = OriginatingCall {
            run: Arc::default(),
            call: CallId("1".into()),
            operation: OperationId(1),
            place: RunPosition::default(),
            scope: Some(Arc::new(scope)),
            events: Arc::new(NoEvents),
        };
        let model = ModelName::parse("p/m")?;
        let (request, held) = within_budget(request(&wanted(), &model), &wanted(), &caller)?;
        let left = meter.left(Duration::ZERO).tokens;
        drop(held);
        Ok((request.output_tokens_max, left))
    }

    #[test]
    fn sampling_tokens_are_limited_by_the_run_budget() {
        assert_eq!(within(None), Ok((Some(100), None)));
        assert_eq!(within(Some(1000)), Ok((Some(100), Some(900))));
        assert_eq!(within(Some(30)), Ok((Some(30), Some(0))));
        assert_eq!(within(Some(0)), Err("the run has used all of its budget (tokens)".into()));
    }
}
