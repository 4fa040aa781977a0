//! The optional features of requests, and the tables in which each format lists those it does not support.

use haft_core::conversation::{Body, Message, Role, Source};
use haft_core::model_request::{
    Effort, ModelRequest, MustCall, OutputShape, ParallelCalls, Sampling, ToolChoice,
};
use haft_core::output::Content;

/// A feature of a request beyond plain text and tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Feature {
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

impl Feature {
    pub const ALL: [Feature; 29] = [
        Feature::SystemInside,
        Feature::ImageBytes,
        Feature::ImageUrl,
        Feature::AudioBytes,
        Feature::AudioUrl,
        Feature::FileBytes,
        Feature::FileUrl,
        Feature::AssistantMedia,
        Feature::ReplyError,
        Feature::ReplyImage,
        Feature::ReplyAudio,
        Feature::ChoiceNone,
        Feature::ChoiceRequired,
        Feature::ChoiceNamed,
        Feature::ChoiceAllowed,
        Feature::OneCallAtATime,
        Feature::OutputJson,
        Feature::OutputSchema,
        Feature::Temperature,
        Feature::TopP,
        Feature::TopK,
        Feature::Seed,
        Feature::PresencePenalty,
        Feature::FrequencyPenalty,
        Feature::StopSequences,
        Feature::EffortOff,
        Feature::Effort,
        Feature::OutputTokensMax,
        Feature::ContextTokens,
    ];

    /// Returns the name for users.
    pub fn name(self) -> &'static str {
        match self {
            Feature::SystemInside => "system text inside the conversation",
            Feature::ImageBytes => "images as bytes",
            Feature::ImageUrl => "images by address",
            Feature::AudioBytes => "audio as bytes",
            Feature::AudioUrl => "audio by address",
            Feature::FileBytes => "files as bytes",
            Feature::FileUrl => "files by address",
            Feature::AssistantMedia => "media that a model made",
            Feature::ReplyError => "the error flag of a tool reply",
            Feature::ReplyImage => "images in tool replies",
            Feature::ReplyAudio => "audio in tool replies",
            Feature::ChoiceNone => "tool choice `none`",
            Feature::ChoiceRequired => "tool choice `required`",
            Feature::ChoiceNamed => "tool choice of one tool",
            Feature::ChoiceAllowed => "tool choice `allowed_tools`",
            Feature::OneCallAtATime => "one call at a time",
            Feature::OutputJson => "any JSON as output",
            Feature::OutputSchema => "output by schema",
            Feature::Temperature => "temperature",
            Feature::TopP => "top-p",
            Feature::TopK => "top-k",
            Feature::Seed => "seed",
            Feature::PresencePenalty => "presence penalty",
            Feature::FrequencyPenalty => "frequency penalty",
            Feature::StopSequences => "stop sequences",
            Feature::EffortOff => "reasoning off",
            Feature::Effort => "reasoning effort",
            Feature::OutputTokensMax => "limit of output tokens",
            Feature::ContextTokens => "size of the context",
        }
    }
}

/// A feature that a format does not support, and the substitute for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsaid {
    pub feature: Feature,
    pub instead: &'static str,
}

/// A set of features.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Features(u64);

impl Features {
    pub(crate) fn insert(&mut self, feature: Feature) {
        self.0 |= 1 << feature as u8;
    }

    fn contains(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// Returns the features of the set that are in the format's table.
    pub(crate) fn unsaid(self, list: &[Unsaid]) -> Vec<Feature> {
        list.iter().map(|row| row.feature).filter(|feature| self.contains(*feature)).collect()
    }

    fn insert_if(&mut self, feature: Feature, holds: impl Into<Option<()>>) {
        if holds.into().is_some() {
            self.insert(feature);
        }
    }

    /// Adds the features of one message.
    pub(crate) fn add_message(&mut self, message: &Message) {
        if message.role == Role::System {
            self.insert(Feature::SystemInside);
        }
        for part in &message.parts {
            self.add_body(message.role, &part.body);
        }
    }

    fn add_body(&mut self, role: Role, body: &Body) {
        let media = match body {
            Body::Image(media) => Some((media, Feature::ImageBytes, Feature::ImageUrl)),
            Body::Audio(media) => Some((media, Feature::AudioBytes, Feature::AudioUrl)),
            Body::File { media, .. } => Some((media, Feature::FileBytes, Feature::FileUrl)),
            Body::Reply(reply) => {
                self.insert_if(Feature::ReplyError, reply.is_error.then_some(()));
                reply.content.iter().for_each(|piece| self.add_content(piece));
                None
            }
            Body::Text { .. } | Body::Refusal(_) | Body::Reasoning(_) | Body::Call(_) | Body::Opaque => None,
        };
        match (media, role) {
            (None, _) => {}
            (Some(_), Role::Assistant) => self.insert(Feature::AssistantMedia),
            (Some((media, by_bytes, by_url)), Role::System | Role::User | Role::Tool) => match media.source {
                Source::Bytes(_) => self.insert(by_bytes),
                Source::Url(_) => self.insert(by_url),
            },
        }
    }

    fn add_content(&mut self, piece: &Content) {
        match piece {
            Content::Image { .. } => self.insert(Feature::ReplyImage),
            Content::Audio { .. } => self.insert(Feature::ReplyAudio),
            Content::Text(_) | Content::Resource { .. } | Content::Binary { .. } | Content::Stored(_) => {}
        }
    }

    /// Adds the features of the request's settings.
    pub(crate) fn add_request(&mut self, request: &ModelRequest) {
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => self.insert(Feature::ChoiceNone),
            ToolChoice::Required => self.insert(Feature::ChoiceRequired),
            ToolChoice::Named(_) => self.insert(Feature::ChoiceNamed),
            ToolChoice::Allowed { must_call: MustCall::No | MustCall::Yes, .. } => {
                self.insert(Feature::ChoiceAllowed);
            }
        }
        match &request.output {
            OutputShape::Text => {}
            OutputShape::Json => self.insert(Feature::OutputJson),
            OutputShape::Schema { .. } => self.insert(Feature::OutputSchema),
        }
        match request.reasoning {
            None => {}
            Some(Effort::Off) => self.insert(Feature::EffortOff),
            Some(Effort::Minimal | Effort::Low | Effort::Medium | Effort::High | Effort::Highest) => {
                self.insert(Feature::Effort);
            }
        }
        let one = request.parallel_calls == ParallelCalls::OneAtATime;
        self.insert_if(Feature::OneCallAtATime, one.then_some(()));
        self.insert_if(Feature::OutputTokensMax, request.output_tokens_max.map(drop));
        self.insert_if(Feature::ContextTokens, request.context_tokens.map(drop));
        self.add_sampling(&request.sampling);
    }

    fn add_sampling(&mut self, sampling: &Sampling) {
        let Sampling { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop } =
            sampling;
        self.insert_if(Feature::Temperature, temperature.map(drop));
        self.insert_if(Feature::TopP, top_p.map(drop));
        self.insert_if(Feature::TopK, top_k.map(drop));
        self.insert_if(Feature::Seed, seed.map(drop));
        self.insert_if(Feature::PresencePenalty, presence_penalty.map(drop));
        self.insert_if(Feature::FrequencyPenalty, frequency_penalty.map(drop));
        self.insert_if(Feature::StopSequences, (!stop.is_empty()).then_some(()));
    }
}
