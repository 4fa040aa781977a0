//! Removes the request fields that a model rejects, according to its family in the data file, and notes each removal.
//!
//! The tables of the formats (`unsupported_features`) list what a format cannot express. This module handles features
//! that the format can express but that a specific model rejects with an error.

use std::sync::Arc;

use haft_core::conversation::{Conversation, Message, ModelApiFormat, PartBody};
use haft_core::model_reply::ReplyNote;
use haft_core::model_request::{ModelRequest, MustCall, ReasoningEffort, ToolChoice};
use haft_core::output::OutputContent;

use crate::media;
use crate::model_data::{self, EffortName, ModelFamily, ReasoningRule, SamplingRule};
use crate::unsupported_features::RequestFeature;

/// A request without the fields that its model rejects.
#[derive(Debug)]
pub struct FittedRequest {
    pub request: ModelRequest,
    /// Notes about the request fields that were removed or changed.
    pub notes: Vec<ReplyNote>,
}

/// Adapts a request to its model. Leaves the request unchanged for a model of an unknown family, because the provider
/// itself decides which fields it accepts. Only Ollama rejects thinking for every model that does not declare it.
pub fn fit(request: ModelRequest, format: ModelApiFormat) -> FittedRequest {
    let mut fitted = FittedRequest { request, notes: Vec::new() };
    match model_data::family_of(&fitted.request.model) {
        Some(family) => {
            fitted.fit_reasoning(family, format);
            if family.reasoning == ReasoningRule::None {
                fitted.drop_reasoning_settings();
            }
            if family.stop_and_penalties == Some(false) {
                fitted.drop_stop_and_penalties();
            }
            fitted.fit_sampling(family.sampling);
            if family.forced_tool_choice == Some(false) {
                fitted.free_tool_choice();
            }
            if family.images == Some(false) {
                fitted.describe_images();
            }
        }
        None if format == ModelApiFormat::Ollama && thinks(fitted.request.reasoning) => {
            fitted.drop_effort(
                "haft does not know whether this model can reason, so haft does not send the effort",
            );
        }
        None => {}
    }
    fitted.fit_sizes(format);
    fitted
}

/// Returns true if a request asks for reasoning.
fn thinks(effort: Option<ReasoningEffort>) -> bool {
    effort.is_some_and(|effort| effort != ReasoningEffort::Off)
}

impl FittedRequest {
    fn note(&mut self, feature: RequestFeature, instead: impl Into<String>) {
        self.notes.push(ReplyNote::FeatureDropped { what: feature.name().into(), instead: instead.into() });
    }

    fn drop_effort(&mut self, why: &str) {
        self.request.reasoning = None;
        self.note(RequestFeature::Effort, why);
    }

    /// Removes the settings that OpenAI's API accepts only for models that reason.
    fn drop_reasoning_settings(&mut self) {
        if self.request.reasoning_summary.take().is_some() {
            self.note(
                RequestFeature::ReasoningSummary,
                "this model does not reason, so haft does not ask for a summary",
            );
        }
        if self.request.verbosity.take().is_some() {
            self.note(
                RequestFeature::Verbosity,
                "this model does not accept a verbosity, so haft does not send it",
            );
        }
    }

    fn fit_reasoning(&mut self, family: &ModelFamily, format: ModelApiFormat) {
        if family.chat_tools_while_reasoning == Some(false)
            && format == ModelApiFormat::OpenaiChat
            && !self.request.tools.is_empty()
        {
            return self.stop_reasoning_beside_tools(family);
        }
        let Some(effort) = self.request.reasoning else { return };
        match family.reasoning {
            // A model that never reasons needs no field to turn reasoning off.
            ReasoningRule::None if effort == ReasoningEffort::Off => self.request.reasoning = None,
            ReasoningRule::None => {
                self.drop_effort("this model does not reason, so haft does not send the effort");
            }
            ReasoningRule::Levels => self.fit_level(family, effort),
            ReasoningRule::Budget | ReasoningRule::Switch => {}
        }
    }

    /// Turns reasoning off for models whose Chat Completions API otherwise rejects tools. A model that reasons by
    /// default needs this field even if the caller did not set an effort.
    fn stop_reasoning_beside_tools(&mut self, family: &ModelFamily) {
        let is_off_by_default = family.sampling == SamplingRule::NoReasoning;
        match self.request.reasoning {
            Some(ReasoningEffort::Off) => {}
            None if is_off_by_default => {}
            None | Some(_) if family.efforts.contains(&EffortName::Off) => {
                self.request.reasoning = Some(ReasoningEffort::Off);
                let why = "haft sends `off`, because the chat completions API refuses tools while this model reasons; use openai-responses";
                self.note(RequestFeature::Effort, why);
            }
            None | Some(_) => {
                self.drop_effort(
                    "haft does not send the effort, because the chat completions API then refuses tools for this model; use openai-responses",
                );
            }
        }
    }

    /// Selects the nearest effort level that the model accepts.
    fn fit_level(&mut self, family: &ModelFamily, wanted: ReasoningEffort) {
        let accepted = family.efforts.iter().map(|name| name.effort());
        let nearest = accepted.min_by_key(|level| (rank(*level).abs_diff(rank(wanted)), rank(*level)));
        let Some(nearest) = nearest.filter(|nearest| *nearest != wanted) else { return };
        self.request.reasoning = Some(nearest);
        let feature =
            if wanted == ReasoningEffort::Off { RequestFeature::EffortOff } else { RequestFeature::Effort };
        self.note(
            feature,
            format!("haft sends {}, the nearest level that this model accepts", level_name(nearest)),
        );
    }

    fn fit_sampling(&mut self, rule: SamplingRule) {
        let reasoning = self.request.reasoning;
        let why = match rule {
            SamplingRule::Always => return,
            SamplingRule::ReasoningOff if reasoning == Some(ReasoningEffort::Off) => return,
            SamplingRule::NoReasoning | SamplingRule::NoReasoningOne if !thinks(reasoning) => {
                return if rule == SamplingRule::NoReasoningOne {
                    self.keep_one();
                };
            }
            SamplingRule::Never => "this model does not accept this setting, so haft does not send it",
            SamplingRule::ReasoningOff | SamplingRule::NoReasoning | SamplingRule::NoReasoningOne => {
                "this model does not accept this setting while it reasons, so haft does not send it"
            }
        };
        let sampling = &mut self.request.sampling;
        let requested = [
            (RequestFeature::Temperature, sampling.temperature.take().is_some()),
            (RequestFeature::TopP, sampling.top_p.take().is_some()),
            (RequestFeature::TopK, sampling.top_k.take().is_some()),
            (RequestFeature::PresencePenalty, sampling.presence_penalty.take().is_some()),
            (RequestFeature::FrequencyPenalty, sampling.frequency_penalty.take().is_some()),
        ];
        for (feature, _) in requested.into_iter().filter(|(_, is_set)| *is_set) {
            self.note(feature, why);
        }
    }

    fn drop_stop_and_penalties(&mut self) {
        let sampling = &mut self.request.sampling;
        let requested = [
            (RequestFeature::PresencePenalty, sampling.presence_penalty.take().is_some()),
            (RequestFeature::FrequencyPenalty, sampling.frequency_penalty.take().is_some()),
            (RequestFeature::StopSequences, !std::mem::take(&mut sampling.stop).is_empty()),
        ];
        for (feature, _) in requested.into_iter().filter(|(_, is_set)| *is_set) {
            self.note(feature, "this model does not accept this setting, so haft does not send it");
        }
    }

    /// Replaces a forced tool call by a choice that lets the model decide whether to call a tool.
    fn free_tool_choice(&mut self) {
        let (choice, feature) = match &self.request.tool_choice {
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Allowed { must_call: MustCall::No, .. } => {
                return;
            }
            ToolChoice::Required => (ToolChoice::Auto, RequestFeature::ChoiceRequired),
            ToolChoice::Named(_) => (ToolChoice::Auto, RequestFeature::ChoiceNamed),
            ToolChoice::Allowed { names, must_call: MustCall::Yes } => (
                ToolChoice::Allowed { names: names.clone(), must_call: MustCall::No },
                RequestFeature::ChoiceAllowed,
            ),
        };
        self.request.tool_choice = choice;
        self.note(feature, "haft sends `auto`, because this model does not accept a forced tool call");
    }

    /// Removes top-p if a temperature is set, for models that accept only one of the two.
    fn keep_one(&mut self) {
        let sampling = &mut self.request.sampling;
        if sampling.temperature.is_some() && sampling.top_p.take().is_some() {
            self.note(
                RequestFeature::TopP,
                "this model does not accept `top_p` together with `temperature`, so haft does not send `top_p`",
            );
        }
    }

    /// Replaces images by a description, because a model that cannot read images rejects them with an error.
    fn describe_images(&mut self) {
        let messages = self.request.conversation.messages();
        if !messages.iter().any(|message| has_image(message)) {
            return;
        }
        let mut described = Conversation::default();
        for message in messages {
            // Ignore the result: the order of the messages does not change, so the conversation accepts all of them.
            let _ = described.push(without_images(message));
        }
        self.request.conversation = Arc::new(described);
        self.note(
            RequestFeature::ImageBytes,
            "haft replaces images by a description in words, because this model does not accept images",
        );
    }

    /// Reduces the output limit, and for Ollama the context size, to the maximum of the model. Ollama would reserve
    /// memory for a larger context.
    fn fit_sizes(&mut self, format: ModelApiFormat) {
        let sizes = model_data::sizes_of(&self.request.model);
        if let (Some(wanted), Some(most)) = (self.request.output_tokens_max, sizes.output_tokens)
            && wanted > most
        {
            self.request.output_tokens_max = Some(most);
            self.note(
                RequestFeature::OutputTokensMax,
                format!("haft reduces the limit to {most}, the maximum of this model"),
            );
        }
        if let (Some(wanted), Some(most)) = (self.request.context_tokens, sizes.context_tokens)
            && format == ModelApiFormat::Ollama
            && wanted > most
        {
            self.request.context_tokens = Some(most);
            self.note(
                RequestFeature::ContextTokens,
                format!("haft reduces the context size to {most}, the context window of this model"),
            );
        }
    }
}

fn has_image(message: &Message) -> bool {
    message.parts.iter().any(|part| match &part.body {
        PartBody::Image(_) => true,
        PartBody::Reply(reply) => reply.content.iter().any(|content| content.as_image().is_some()),
        PartBody::Text { .. }
        | PartBody::Refusal(_)
        | PartBody::Audio(_)
        | PartBody::File { .. }
        | PartBody::Reasoning(_)
        | PartBody::Call(_)
        | PartBody::Opaque => false,
    })
}

/// Returns the message with a description in place of each image.
fn without_images(message: &Message) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        match &mut part.body {
            PartBody::Image(media) => {
                let text = unseen(&media::described("image", media));
                part.body = PartBody::Text { text, annotations: Vec::new() };
            }
            PartBody::Reply(reply) => {
                for content in reply.content.iter_mut().filter(|content| content.as_image().is_some()) {
                    *content = OutputContent::Text(unseen(&content.as_text()));
                }
            }
            PartBody::Text { .. }
            | PartBody::Refusal(_)
            | PartBody::Audio(_)
            | PartBody::File { .. }
            | PartBody::Reasoning(_)
            | PartBody::Call(_)
            | PartBody::Opaque => {}
        }
    }
    message
}

fn unseen(description: &str) -> String {
    format!("{description} (you cannot see images)")
}

fn rank(effort: ReasoningEffort) -> u8 {
    match effort {
        ReasoningEffort::Off => 0,
        ReasoningEffort::Minimal => 1,
        ReasoningEffort::Low => 2,
        ReasoningEffort::Medium => 3,
        ReasoningEffort::High => 4,
        ReasoningEffort::Highest => 5,
    }
}

fn level_name(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Off => "`off`",
        ReasoningEffort::Minimal => "`minimal`",
        ReasoningEffort::Low => "`low`",
        ReasoningEffort::Medium => "`medium`",
        ReasoningEffort::High => "`high`",
        ReasoningEffort::Highest => "`highest`",
    }
}

/// The first model versions that can load tool definitions by name after a tool search.
const CLAUDE_LOADS_TOOLS: (u32, u32) = (4, 5);
const GPT_LOADS_TOOLS: (u32, u32) = (5, 4);

/// Returns true if a model can load tool definitions by name after a tool search. All other models get the definitions
/// of the found tools as text.
pub fn loads_tools(format: ModelApiFormat, model: &str) -> bool {
    let is_from = |families: &[&str], first: (u32, u32)| {
        families.iter().filter_map(|family| version_after(model, family)).any(|version| version >= first)
    };
    match format {
        ModelApiFormat::Anthropic => is_from(&["claude-opus-", "claude-sonnet-"], CLAUDE_LOADS_TOOLS),
        ModelApiFormat::OpenaiResponses => is_from(&["gpt-"], GPT_LOADS_TOOLS),
        ModelApiFormat::OpenaiChat | ModelApiFormat::Gemini | ModelApiFormat::Ollama => false,
    }
}

/// Returns the version after a family name: `claude-opus-4-5-20251101` is 4.5, and `gpt-5.4-mini` is 5.4. A date is not
/// a minor version.
fn version_after(model: &str, family: &str) -> Option<(u32, u32)> {
    let (_, rest) = model.split_once(family)?;
    let mut numbers = rest.split(['-', '.']).map(str::parse::<u32>);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next().and_then(Result::ok).filter(|minor| *minor < 1_000);
    Some((major, minor.unwrap_or(0)))
}

/// The number of tokens for an answer without thinking.
const ANSWER_TOKENS: u32 = 16_384;

/// Returns the default output limit of a known model: the tokens for an answer and the requested thinking, but at most
/// the maximum of the model. The limit is no larger than needed, because every reply reserves its limit in the context.
/// Returns `None` for an unknown model.
pub fn default_output_tokens(model: &str, effort: Option<ReasoningEffort>) -> Option<u32> {
    let most = model_data::sizes_of(model).output_tokens?;
    let thinking = match effort {
        None if may_reason(model) => 16_384,
        None | Some(ReasoningEffort::Off) => 0,
        Some(ReasoningEffort::Minimal) => 2048,
        Some(ReasoningEffort::Low) => 4096,
        Some(ReasoningEffort::Medium) => 16_384,
        Some(ReasoningEffort::High) => 32_768,
        Some(ReasoningEffort::Highest) => 49_152,
    };
    Some(most.min(ANSWER_TOKENS + thinking))
}

/// Returns true if a model takes a thinking budget in tokens instead of an effort level.
pub(crate) fn thinks_by_budget(model: &str) -> bool {
    model_data::family_of(model).is_some_and(|family| family.reasoning == ReasoningRule::Budget)
}

/// Returns true if a model may reason. Returns true for an unknown model, because new models reason.
pub(crate) fn may_reason(model: &str) -> bool {
    model_data::family_of(model).is_none_or(|family| family.reasoning != ReasoningRule::None)
}

#[cfg(test)]
mod tests {
    use haft_core::arguments::RawArguments;
    use haft_core::conversation::{Media, MediaSource, MessagePart, ToolReply};
    use haft_core::model_request::{ModelTool, ReasoningSummary, SamplingParameters, Verbosity};
    use haft_core::tool::{CallId, ToolCall};

    use super::*;

    #[test]
    fn model_versions_that_can_load_tools_are_recognized() {
        let check = |format: ModelApiFormat, model: &str, expected: bool| {
            assert_eq!(loads_tools(format, model), expected, "{model}");
        };
        check(ModelApiFormat::Anthropic, "claude-sonnet-4-5-20250929", true);
        check(ModelApiFormat::Anthropic, "claude-opus-5", true);
        check(ModelApiFormat::Anthropic, "claude-opus-4-20250514", false);
        check(ModelApiFormat::Anthropic, "claude-3-7-sonnet-latest", false);
        check(ModelApiFormat::Anthropic, "claude-haiku-4-5", false);
        check(ModelApiFormat::Anthropic, "m", false);
        check(ModelApiFormat::OpenaiResponses, "gpt-5.4-mini", true);
        check(ModelApiFormat::OpenaiResponses, "gpt-6", true);
        check(ModelApiFormat::OpenaiResponses, "gpt-5", false);
        check(ModelApiFormat::OpenaiResponses, "gpt-4o", false);
        check(ModelApiFormat::OpenaiChat, "gpt-5.4", false);
    }

    fn request(model: &str, reasoning: Option<ReasoningEffort>) -> ModelRequest {
        let sampling =
            SamplingParameters { temperature: Some(0.5), top_p: Some(0.9), ..SamplingParameters::default() };
        ModelRequest { reasoning, sampling, ..ModelRequest::new(model, Arc::default()) }
    }

    #[test]
    fn fields_that_a_model_refuses_are_omitted_and_noted() {
        let check = |model: &str,
                     effort: Option<ReasoningEffort>,
                     expected: (Option<ReasoningEffort>, bool, bool),
                     notes: usize| {
            let fitted = fit(request(model, effort), ModelApiFormat::OpenaiChat);
            let ModelRequest { reasoning, sampling, .. } = &fitted.request;
            let found = (*reasoning, sampling.temperature.is_some(), sampling.top_p.is_some());
            assert_eq!(
                (found, fitted.notes.len()),
                (expected, notes),
                "{model} {effort:?}: {:?}",
                fitted.notes
            );
        };
        let high = Some(ReasoningEffort::High);
        check("gpt-4o", high, (None, true, true), 1);
        check("gpt-4o", Some(ReasoningEffort::Off), (None, true, true), 0);
        check("gpt-5-mini", high, (high, false, false), 2);
        check("gpt-5-mini", Some(ReasoningEffort::Off), (Some(ReasoningEffort::Minimal), false, false), 3);
        check("gpt-5.1", Some(ReasoningEffort::Minimal), (Some(ReasoningEffort::Off), true, true), 1);
        check("gpt-5.2", Some(ReasoningEffort::Off), (Some(ReasoningEffort::Off), true, true), 0);
        check("gpt-5.2", None, (None, true, true), 0);
        check("gpt-5.5", None, (None, false, false), 2);
        check("gpt-5-pro", Some(ReasoningEffort::Off), (high, false, false), 3);
        check("gpt-6.1-sol", Some(ReasoningEffort::Off), (Some(ReasoningEffort::Low), false, false), 3);
        check("gpt-6-luna", Some(ReasoningEffort::Off), (Some(ReasoningEffort::Off), true, true), 0);
        check("claude-opus-5-5", Some(ReasoningEffort::Off), (Some(ReasoningEffort::Low), false, false), 3);
        check("grok-4.5", Some(ReasoningEffort::Off), (Some(ReasoningEffort::Low), true, true), 1);
        check("gpt-7", high, (high, true, true), 0);
        check("o3", Some(ReasoningEffort::Highest), (high, false, false), 3);
        check("claude-sonnet-4-5", None, (None, true, false), 1);
        check("claude-sonnet-4-5", high, (high, false, false), 2);
        check("claude-sonnet-5", None, (None, false, false), 2);
        check("my-own", high, (high, true, true), 0);
    }

    #[test]
    fn models_without_reasoning_get_no_summary_and_no_verbosity() {
        let check = |model: &str, expected: bool| {
            let asked = ModelRequest {
                reasoning_summary: Some(ReasoningSummary::Concise),
                verbosity: Some(Verbosity::Low),
                ..ModelRequest::new(model, Arc::default())
            };
            let fitted = fit(asked, ModelApiFormat::OpenaiResponses);
            let kept = (fitted.request.reasoning_summary.is_some(), fitted.request.verbosity.is_some());
            let notes = if expected { 0 } else { 2 };
            assert_eq!((kept, fitted.notes.len()), ((expected, expected), notes), "{model}");
        };
        check("gpt-5", true);
        check("my-own", true);
        check("gpt-4o", false);
    }

    #[test]
    fn reasoning_is_off_if_chat_completions_would_refuse_the_tools() {
        let check = |model: &str,
                     effort: Option<ReasoningEffort>,
                     expected: Option<ReasoningEffort>,
                     notes: usize| {
            let tool = ModelTool {
                name: "t".into(),
                description: String::new(),
                input_schema: Arc::default(),
                strict: false,
            };
            let asked = ModelRequest {
                reasoning: effort,
                tools: [tool].into(),
                ..ModelRequest::new(model, Arc::default())
            };
            let fitted = fit(asked.clone(), ModelApiFormat::OpenaiChat);
            assert_eq!(
                (fitted.request.reasoning, fitted.notes.len()),
                (expected, notes),
                "{model} {effort:?}"
            );
            let fitted = fit(asked, ModelApiFormat::OpenaiResponses);
            assert_eq!((fitted.request.reasoning, fitted.notes.len()), (effort, 0), "{model} {effort:?}");
        };
        let (high, off) = (Some(ReasoningEffort::High), Some(ReasoningEffort::Off));
        check("gpt-5.5", None, off, 1);
        check("gpt-5.5", high, off, 1);
        check("gpt-5.5", off, off, 0);
        check("gpt-5.4", None, None, 0);
        check("gpt-5.4", high, off, 1);
        check("gpt-6-astra", high, None, 1);
        check("gpt-5.2", high, high, 0);
    }

    #[test]
    fn forced_tool_choice_penalties_and_stop_sequences_are_sent_if_the_model_accepts_them() {
        let forced = |model: &str| {
            let sampling = SamplingParameters {
                presence_penalty: Some(0.1),
                stop: vec!["x".into()],
                ..SamplingParameters::default()
            };
            let tool_choice = ToolChoice::Required;
            let request = ModelRequest { tool_choice, sampling, ..ModelRequest::new(model, Arc::default()) };
            let fitted = fit(request, ModelApiFormat::OpenaiChat);
            let ModelRequest { tool_choice, sampling, .. } = fitted.request;
            (
                tool_choice == ToolChoice::Required,
                sampling.presence_penalty.is_some(),
                sampling.stop.len(),
                fitted.notes.len(),
            )
        };
        assert_eq!(forced("claude-sonnet-5-5"), (false, false, 1, 2));
        assert_eq!(forced("claude-sonnet-4-5"), (true, true, 1, 0));
        assert_eq!(forced("grok-4"), (true, false, 0, 2));
        assert_eq!(forced("gpt-5-mini"), (true, false, 0, 2));
        assert_eq!(forced("gpt-4o"), (true, true, 1, 0));
    }

    #[test]
    fn images_are_sent_only_to_vision_models() {
        let png: Arc<[u8]> = b"\x89PNG".as_slice().into();
        let source = MediaSource::Bytes(Arc::clone(&png));
        let mut question = Message::user("Which colour?");
        question
            .parts
            .push(MessagePart::new(PartBody::Image(Media { media_type: "image/png".into(), source })));
        let call = ToolCall {
            id: CallId("c1".into()),
            name: "read".into(),
            arguments: RawArguments::from_text("{}".to_owned()),
        };
        let mut reply = ToolReply::text(&call, "");
        reply.content = vec![OutputContent::Image { media_type: "image/png".into(), bytes: png }];
        let mut conversation = Conversation::default();
        for message in [
            question,
            Message::assistant(vec![MessagePart::new(PartBody::Call(call))]),
            Message::tool(vec![reply]),
        ] {
            conversation.push(message).unwrap();
        }
        let conversation = Arc::new(conversation);
        let check = |model: &str, format: ModelApiFormat, sees: bool| {
            let fitted = fit(ModelRequest::new(model, Arc::clone(&conversation)), format);
            let messages = fitted.request.conversation.messages();
            assert_eq!(
                messages.iter().filter(|message| has_image(message)).count(),
                if sees { 2 } else { 0 }
            );
            assert_eq!(fitted.notes.len(), usize::from(!sees), "{model}: {:?}", fitted.notes);
            let shown = format!("{messages:?}");
            assert_eq!(shown.matches("(you cannot see images)").count(), if sees { 0 } else { 2 }, "{shown}");
        };
        check("gpt-4o", ModelApiFormat::OpenaiChat, true);
        check("claude-sonnet-4-5", ModelApiFormat::Anthropic, true);
        check("llama3:8b", ModelApiFormat::Ollama, false);
        check("llama3.2-vision:11b", ModelApiFormat::Ollama, true);
        check("openai/gpt-oss-20b", ModelApiFormat::OpenaiChat, false);
        check("my-own", ModelApiFormat::OpenaiChat, true);
    }

    #[test]
    fn token_limits_above_the_maximum_of_the_model_are_capped() {
        let mut asked = ModelRequest::new("llama3:8b", Arc::default());
        asked.context_tokens = Some(131_072);
        assert_eq!(fit(asked.clone(), ModelApiFormat::Ollama).request.context_tokens, Some(8192));
        assert_eq!(fit(asked, ModelApiFormat::OpenaiChat).request.context_tokens, Some(131_072));
        let mut asked = ModelRequest::new("claude-3-haiku-20240307", Arc::default());
        asked.output_tokens_max = Some(8192);
        let fitted = fit(asked, ModelApiFormat::Anthropic);
        assert_eq!((fitted.request.output_tokens_max, fitted.notes.len()), (Some(4096), 1));
    }
}
