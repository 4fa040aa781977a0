//! The optional features of requests, and the tables in which each format lists those it does not support.

use haft_core::conversation::{MediaSource, Message, PartBody, Role};
use haft_core::model_request::{
    ModelRequest, MustCall, OutputShape, ParallelCalls, ReasoningEffort, SamplingParameters, ToolChoice,
};
use haft_core::output::OutputContent;

/// A feature of a request beyond plain text and tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RequestFeature {
    SystemInside,
    ImageBytes,
    ImageUrl,
    AudioBytes,
    AudioUrl,
    FileBytes,
    FileUrl,
    AssistantMedia,
    ReplyError,
    ReplyImage,
    ReplyAudio,
    ChoiceNone,
    ChoiceRequired,
    ChoiceNamed,
    ChoiceAllowed,
    OneCallAtATime,
    OutputJson,
    OutputSchema,
    Temperature,
    TopP,
    TopK,
    Seed,
    PresencePenalty,
    FrequencyPenalty,
    StopSequences,
    EffortOff,
    Effort,
    OutputTokensMax,
    ContextTokens,
}

impl RequestFeature {
    pub const ALL: [RequestFeature; 29] = [
        RequestFeature::SystemInside,
        RequestFeature::ImageBytes,
        RequestFeature::ImageUrl,
        RequestFeature::AudioBytes,
        RequestFeature::AudioUrl,
        RequestFeature::FileBytes,
        RequestFeature::FileUrl,
        RequestFeature::AssistantMedia,
        RequestFeature::ReplyError,
        RequestFeature::ReplyImage,
        RequestFeature::ReplyAudio,
        RequestFeature::ChoiceNone,
        RequestFeature::ChoiceRequired,
        RequestFeature::ChoiceNamed,
        RequestFeature::ChoiceAllowed,
        RequestFeature::OneCallAtATime,
        RequestFeature::OutputJson,
        RequestFeature::OutputSchema,
        RequestFeature::Temperature,
        RequestFeature::TopP,
        RequestFeature::TopK,
        RequestFeature::Seed,
        RequestFeature::PresencePenalty,
        RequestFeature::FrequencyPenalty,
        RequestFeature::StopSequences,
        RequestFeature::EffortOff,
        RequestFeature::Effort,
        RequestFeature::OutputTokensMax,
        RequestFeature::ContextTokens,
    ];

    /// Returns the name for users.
    pub fn name(self) -> &'static str {
        match self {
            RequestFeature::SystemInside => "system text inside the conversation",
            RequestFeature::ImageBytes => "images as bytes",
            RequestFeature::ImageUrl => "images by address",
            RequestFeature::AudioBytes => "audio as bytes",
            RequestFeature::AudioUrl => "audio by address",
            RequestFeature::FileBytes => "files as bytes",
            RequestFeature::FileUrl => "files by address",
            RequestFeature::AssistantMedia => "media that a model made",
            RequestFeature::ReplyError => "the error flag of a tool reply",
            RequestFeature::ReplyImage => "images in tool replies",
            RequestFeature::ReplyAudio => "audio in tool replies",
            RequestFeature::ChoiceNone => "tool choice `none`",
            RequestFeature::ChoiceRequired => "tool choice `required`",
            RequestFeature::ChoiceNamed => "tool choice of one tool",
            RequestFeature::ChoiceAllowed => "tool choice `allowed_tools`",
            RequestFeature::OneCallAtATime => "one call at a time",
            RequestFeature::OutputJson => "any JSON as output",
            RequestFeature::OutputSchema => "output by schema",
            RequestFeature::Temperature => "temperature",
            RequestFeature::TopP => "top-p",
            RequestFeature::TopK => "top-k",
            RequestFeature::Seed => "seed",
            RequestFeature::PresencePenalty => "presence penalty",
            RequestFeature::FrequencyPenalty => "frequency penalty",
            RequestFeature::StopSequences => "stop sequences",
            RequestFeature::EffortOff => "reasoning off",
            RequestFeature::Effort => "reasoning effort",
            RequestFeature::OutputTokensMax => "limit of output tokens",
            RequestFeature::ContextTokens => "size of the context",
        }
    }
}

/// A feature that a format does not support, and the substitute for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedFeature {
    pub feature: RequestFeature,
    pub instead: &'static str,
}

/// A set of features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FeatureSet(u64);

impl FeatureSet {
    pub(crate) fn insert(&mut self, feature: RequestFeature) {
        self.0 |= 1 << feature as u8;
    }

    fn contains(self, feature: RequestFeature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// Returns the features of the set that are in the format's table.
    pub(crate) fn unsaid(self, list: &[UnsupportedFeature]) -> Vec<RequestFeature> {
        list.iter().map(|row| row.feature).filter(|feature| self.contains(*feature)).collect()
    }

    fn insert_if(&mut self, feature: RequestFeature, holds: impl Into<Option<()>>) {
        if holds.into().is_some() {
            self.insert(feature);
        }
    }

    /// Adds the features of one message.
    pub(crate) fn add_message(&mut self, message: &Message) {
        if message.role == Role::System {
            self.insert(RequestFeature::SystemInside);
        }
        for part in &message.parts {
            self.add_body(message.role, &part.body);
        }
    }

    fn add_body(&mut self, role: Role, body: &PartBody) {
        let media = match body {
            PartBody::Image(media) => Some((media, RequestFeature::ImageBytes, RequestFeature::ImageUrl)),
            PartBody::Audio(media) => Some((media, RequestFeature::AudioBytes, RequestFeature::AudioUrl)),
            PartBody::File { media, .. } => Some((media, RequestFeature::FileBytes, RequestFeature::FileUrl)),
            PartBody::Reply(reply) => {
                self.insert_if(RequestFeature::ReplyError, reply.is_error.then_some(()));
                reply.content.iter().for_each(|piece| self.add_content(piece));
                None
            }
            PartBody::Text { .. }
            | PartBody::Refusal(_)
            | PartBody::Reasoning(_)
            | PartBody::Call(_)
            | PartBody::Opaque => None,
        };
        match (media, role) {
            (None, _) => {}
            (Some(_), Role::Assistant) => self.insert(RequestFeature::AssistantMedia),
            (Some((media, by_bytes, by_url)), Role::System | Role::User | Role::Tool) => match media.source {
                MediaSource::Bytes(_) => self.insert(by_bytes),
                MediaSource::Url(_) => self.insert(by_url),
            },
        }
    }

    fn add_content(&mut self, piece: &OutputContent) {
        match piece {
            OutputContent::Image { .. } => self.insert(RequestFeature::ReplyImage),
            OutputContent::Audio { .. } => self.insert(RequestFeature::ReplyAudio),
            OutputContent::Text(_)
            | OutputContent::Resource { .. }
            | OutputContent::Binary { .. }
            | OutputContent::Stored(_) => {}
        }
    }

    /// Adds the features of the request's settings.
    pub(crate) fn add_request(&mut self, request: &ModelRequest) {
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => self.insert(RequestFeature::ChoiceNone),
            ToolChoice::Required => self.insert(RequestFeature::ChoiceRequired),
            ToolChoice::Named(_) => self.insert(RequestFeature::ChoiceNamed),
            ToolChoice::Allowed { must_call: MustCall::No | MustCall::Yes, .. } => {
                self.insert(RequestFeature::ChoiceAllowed);
            }
        }
        match &request.output {
            OutputShape::Text => {}
            OutputShape::Json => self.insert(RequestFeature::OutputJson),
            OutputShape::Schema { .. } => self.insert(RequestFeature::OutputSchema),
        }
        match request.reasoning {
            None => {}
            Some(ReasoningEffort::Off) => self.insert(RequestFeature::EffortOff),
            Some(
                ReasoningEffort::Minimal
                | ReasoningEffort::Low
                | ReasoningEffort::Medium
                | ReasoningEffort::High
                | ReasoningEffort::Highest,
            ) => {
                self.insert(RequestFeature::Effort);
            }
        }
        let one = request.parallel_calls == ParallelCalls::OneAtATime;
        self.insert_if(RequestFeature::OneCallAtATime, one.then_some(()));
        self.insert_if(RequestFeature::OutputTokensMax, request.output_tokens_max.map(drop));
        self.insert_if(RequestFeature::ContextTokens, request.context_tokens.map(drop));
        self.add_sampling(&request.sampling);
    }

    fn add_sampling(&mut self, sampling: &SamplingParameters) {
        let SamplingParameters { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop } =
            sampling;
        self.insert_if(RequestFeature::Temperature, temperature.map(drop));
        self.insert_if(RequestFeature::TopP, top_p.map(drop));
        self.insert_if(RequestFeature::TopK, top_k.map(drop));
        self.insert_if(RequestFeature::Seed, seed.map(drop));
        self.insert_if(RequestFeature::PresencePenalty, presence_penalty.map(drop));
        self.insert_if(RequestFeature::FrequencyPenalty, frequency_penalty.map(drop));
        self.insert_if(RequestFeature::StopSequences, (!stop.is_empty()).then_some(()));
    }
}
