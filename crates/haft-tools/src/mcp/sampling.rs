//! MCP sampling: parses a server's request to a model, asks for consent, and returns the model's answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haft_core::conversation::{Conversation, Media, MediaSource, Message, MessagePart, PartBody, Role};
use haft_core::elicitation::{ElicitationAnswer, Elicitor};
use haft_core::model_reply::StopReason;
use haft_core::sampling::{SamplingReply, SamplingRequest};
use haft_core::settings::mcp::{SamplingConsent, SamplingLimits};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounded::cut;
use super::in_flight::InFlight;
use super::refusal::ServerRequestRefusal;

/// The maximum size of a sampling request, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The maximum number of messages in a request.
const MESSAGES_MAX: usize = 100;

/// The maximum number of stop sequences in a request.
const STOPS_MAX: usize = 16;

/// The maximum length of the request excerpt in the consent question, in characters.
const SHOWN_CHARS_MAX: usize = 1_000;

/// The limits for sampling requests from one server.
#[derive(Debug)]
pub(super) struct SamplingPolicy {
    pub(super) settings: SamplingLimits,
}

impl SamplingPolicy {
    /// Returns the JSON result. The request is charged to the run that made the tool call. The user of this run
    /// consents, and its sampler calls the model.
    pub(super) async fn answer(
        &self,
        server: &str,
        params: &RawValue,
        call: &InFlight,
    ) -> Result<String, ServerRequestRefusal> {
        let requests_max = self.settings.requests_per_call_max;
        if call.count_sample() > requests_max {
            return Err(declined(format!(
                "the MCP server may send at most {requests_max} sampling requests per tool call"
            )));
        }
        let wanted = read(server, params, &self.settings)?;
        let run = &call.caller.run;
        let sampler = run.sampler.as_ref().ok_or_else(|| declined("no model is available for sampling"))?;
        let written = async {
            self.consent(&wanted, run.elicitor.as_deref()).await?;
            sampler.sample(wanted, &call.caller).await.map_err(ServerRequestRefusal::Declined)
        };
        tokio::select! {
            biased;
            () = call.over() => Err(declined("the tool call has ended")),
            written = written => written.map(|written| reply_json(&written)),
        }
    }

    async fn consent(
        &self,
        wanted: &SamplingRequest,
        person: Option<&dyn Elicitor>,
    ) -> Result<(), ServerRequestRefusal> {
        match self.settings.consent {
            SamplingConsent::Given => Ok(()),
            SamplingConsent::Ask => {
                let person =
                    person.ok_or_else(|| declined("no user is available to allow the sampling request"))?;
                match person.elicit(&wanted.server, question(wanted)).await {
                    ElicitationAnswer::Accepted(answer) if answer["allow"] == true => Ok(()),
                    ElicitationAnswer::Accepted(_)
                    | ElicitationAnswer::Declined
                    | ElicitationAnswer::Cancelled => Err(declined("the user rejected the sampling request")),
                }
            }
        }
    }
}

fn declined(why: impl Into<String>) -> ServerRequestRefusal {
    ServerRequestRefusal::Declined(why.into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SamplingParams {
    #[serde(default)]
    messages: Vec<SamplingMessage>,
    #[serde(default)]
    system_prompt: Option<String>,
    #[serde(default)]
    max_tokens: Option<f64>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    stop_sequences: Vec<String>,
    #[serde(default)]
    tools: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct SamplingMessage {
    role: SamplingRole,
    content: SamplingContent,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SamplingRole {
    User,
    Assistant,
}

/// The content of a message: one part, or several in newer protocol versions.
#[derive(Deserialize)]
#[serde(untagged)]
enum SamplingContent {
    Several(Vec<SamplingContentPart>),
    One(SamplingContentPart),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SamplingContentPart {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    mime_type: String,
}

/// Parses a request. Ignores `includeContext`, so that the server learns nothing about the conversation of the run.
/// Also ignores the model preferences, because the operator chooses the model.
fn read(
    server: &str,
    params: &RawValue,
    settings: &SamplingLimits,
) -> Result<SamplingRequest, ServerRequestRefusal> {
    let bytes = params.get().len();
    if bytes > REQUEST_BYTES_MAX {
        return Err(declined(format!(
            "the sampling request has {bytes} bytes; the limit is {REQUEST_BYTES_MAX}"
        )));
    }
    let params: SamplingParams = serde_json::from_str(params.get())
        .map_err(|error| wrong(&format!("haft cannot parse the parameters: {error}")))?;
    if params.tools.is_some_and(|tools| !tools.is_empty()) {
        return Err(wrong("`tools` are not supported in sampling requests"));
    }
    let count = params.messages.len();
    if count == 0 || count > MESSAGES_MAX {
        return Err(wrong(&format!("`messages` must have 1 to {MESSAGES_MAX} messages; got {count}")));
    }
    if params.stop_sequences.len() > STOPS_MAX {
        return Err(wrong(&format!("`stopSequences` may have at most {STOPS_MAX} sequences")));
    }
    let mut conversation = Conversation::default();
    for message_params in params.messages {
        conversation.push(message(message_params)?).map_err(|error| wrong(&error.to_string()))?;
    }
    Ok(SamplingRequest {
        server: server.to_owned(),
        model: settings.model.clone(),
        system: params.system_prompt.unwrap_or_default(),
        conversation,
        output_tokens_max: tokens(params.max_tokens, settings.output_tokens_max),
        temperature: params.temperature,
        stop: params.stop_sequences,
    })
}

fn wrong(problem: &str) -> ServerRequestRefusal {
    ServerRequestRefusal::Wrong(format!("sampling/createMessage: {problem}"))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is clamped to the range of `u32` before the cast"
)]
fn tokens(wanted: Option<f64>, tokens_max: u32) -> u32 {
    wanted.map_or(tokens_max, |wanted| wanted.max(1.0).min(f64::from(tokens_max)) as u32)
}

fn message(SamplingMessage { role, content }: SamplingMessage) -> Result<Message, ServerRequestRefusal> {
    let pieces = match content {
        SamplingContent::One(piece) => vec![piece],
        SamplingContent::Several(pieces) => pieces,
    };
    let parts = pieces.into_iter().map(part).collect::<Result<_, _>>()?;
    let role = match role {
        SamplingRole::User => Role::User,
        SamplingRole::Assistant => Role::Assistant,
    };
    Ok(Message { role, parts })
}

fn part(piece: SamplingContentPart) -> Result<MessagePart, ServerRequestRefusal> {
    match piece.kind.as_str() {
        "text" => Ok(MessagePart::text(piece.text)),
        "image" => media(&piece).map(|media| MessagePart::new(PartBody::Image(media))),
        "audio" => media(&piece).map(|media| MessagePart::new(PartBody::Audio(media))),
        other => Err(wrong(&format!("content of type `{}` is not supported", excerpt(other)))),
    }
}

fn media(piece: &SamplingContentPart) -> Result<Media, ServerRequestRefusal> {
    let bytes = STANDARD.decode(&piece.data).map_err(|_| wrong("`data` must be base64"))?;
    Ok(Media { media_type: piece.mime_type.clone(), source: MediaSource::Bytes(bytes.into()) })
}

/// Returns the consent question for the user. It is an elicitation request, so every user interface can
/// show it.
fn question(request: &SamplingRequest) -> Value {
    let SamplingRequest { output_tokens_max, model, .. } = request;
    let model = model.as_ref().map_or_else(|| "a model".to_owned(), |model| format!("`{model}`"));
    let texts = request.conversation.messages().iter().flat_map(|message| &message.parts).map(shown);
    let system = Some(request.system.as_str()).filter(|system| !system.is_empty()).map(str::to_owned);
    let texts: Vec<String> = system.into_iter().chain(texts).collect();
    let message = format!(
        "Allow {model} to write up to {output_tokens_max} tokens for the MCP server? The prompt is:\n{}",
        excerpt(&texts.join("\n"))
    );
    let allow = json!({ "type": "boolean", "description": "allow this request" });
    let schema = json!({ "type": "object", "properties": { "allow": allow }, "required": ["allow"] });
    json!({ "message": message, "requestedSchema": schema })
}

fn shown(part: &MessagePart) -> String {
    match &part.body {
        PartBody::Text { text, .. } => text.clone(),
        PartBody::Image(media) | PartBody::Audio(media) => format!("({})", media.media_type),
        // `part` creates no other body.
        PartBody::Refusal(_)
        | PartBody::File { .. }
        | PartBody::Reasoning(_)
        | PartBody::Call(_)
        | PartBody::Reply(_)
        | PartBody::Opaque => String::new(),
    }
}

fn excerpt(text: &str) -> String {
    let all = text.chars().count();
    let rest = if all > SHOWN_CHARS_MAX { format!(" ({all} characters in all)") } else { String::new() };
    cut(text, SHOWN_CHARS_MAX) + &rest
}

fn reply_json(written: &SamplingReply) -> String {
    let stop = match &written.stop {
        StopReason::Length => "maxTokens",
        StopReason::StopSequence => "stopSequence",
        StopReason::EndOfTurn
        | StopReason::ToolCalls
        | StopReason::Refusal
        | StopReason::Filtered
        | StopReason::Paused
        | StopReason::CutOff
        | StopReason::Other(_) => "endTurn",
    };
    let content = json!({ "type": "text", "text": written.text });
    json!({ "role": "assistant", "content": content, "model": written.model, "stopReason": stop }).to_string()
}

#[cfg(test)]
mod tests;
