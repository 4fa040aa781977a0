//! MCP sampling: reads a server's model request, asks for consent, and returns the model's answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haft_core::conversation::{Body, Conversation, Media, Message, Part, Role, Source};
use haft_core::elicitation::{Elicited, Elicitor};
use haft_core::model_reply::StopReason;
use haft_core::sampling::{Sample, Sampled};
use haft_core::settings::mcp::{Sampling, SamplingConsent};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::bounded::cut;
use super::in_flight::InFlight;
use super::refusal::Refusal;

/// The largest request, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The most messages of a request.
const MESSAGES_MAX: usize = 100;

/// The most stop sequences of a request.
const STOPS_MAX: usize = 16;

/// The longest excerpt of a request in the consent question, in characters.
const SHOWN_CHARS_MAX: usize = 1_000;

/// The limits of one server's model requests.
#[derive(Debug)]
pub(super) struct SamplingPolicy {
    pub(super) settings: Sampling,
}

impl SamplingPolicy {
    /// Returns the JSON result. The run of the call pays, its user consents, and its sampler calls the model.
    pub(super) async fn answer(
        &self,
        server: &str,
        params: &RawValue,
        call: &InFlight,
    ) -> Result<String, Refusal> {
        let requests_max = self.settings.requests_per_call_max;
        if call.count_sample() > requests_max {
            return Err(declined(format!("a call may ask a model {requests_max} times at most")));
        }
        let wanted = read(server, params, &self.settings)?;
        let run = &call.caller.run;
        let sampler = run.sampler.as_ref().ok_or_else(|| declined("there is no model here"))?;
        let written = async {
            self.consent(&wanted, run.elicitor.as_deref()).await?;
            sampler.sample(wanted, &call.caller).await.map_err(Refusal::Declined)
        };
        tokio::select! {
            biased;
            () = call.over() => Err(declined("the call is over")),
            written = written => written.map(|written| told(&written)),
        }
    }

    async fn consent(&self, wanted: &Sample, person: Option<&dyn Elicitor>) -> Result<(), Refusal> {
        match self.settings.consent {
            SamplingConsent::Given => Ok(()),
            SamplingConsent::Ask => {
                let person = person.ok_or_else(|| declined("nobody is there who could allow it"))?;
                match person.elicit(&wanted.server, question(wanted)).await {
                    Elicited::Accepted(answer) if answer["allow"] == true => Ok(()),
                    Elicited::Accepted(_) | Elicited::Declined | Elicited::Cancelled => {
                        Err(declined("the user rejected it"))
                    }
                }
            }
        }
    }
}

fn declined(why: impl Into<String>) -> Refusal {
    Refusal::Declined(why.into())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    #[serde(default)]
    messages: Vec<Said>,
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
struct Said {
    role: Speaker,
    content: Content,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Speaker {
    User,
    Assistant,
}

/// One part, or several in newer protocol versions.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Several(Vec<Piece>),
    One(Piece),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Piece {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    data: String,
    #[serde(default)]
    mime_type: String,
}

/// Reads a request. It ignores `includeContext`, so no conversation of ours reaches the server, and the model
/// preferences, because the operator chooses the model.
fn read(server: &str, params: &RawValue, settings: &Sampling) -> Result<Sample, Refusal> {
    let bytes = params.get().len();
    if bytes > REQUEST_BYTES_MAX {
        return Err(declined(format!("the request has {bytes} bytes; at most {REQUEST_BYTES_MAX} are read")));
    }
    let params: Params =
        serde_json::from_str(params.get()).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    if params.tools.is_some_and(|tools| !tools.is_empty()) {
        return Err(wrong("`tools` are not supported: the model that writes for a server has none"));
    }
    let count = params.messages.len();
    if count == 0 || count > MESSAGES_MAX {
        return Err(wrong(&format!("`messages` must have 1 to {MESSAGES_MAX} messages; got {count}")));
    }
    if params.stop_sequences.len() > STOPS_MAX {
        return Err(wrong(&format!("`stopSequences` may have {STOPS_MAX} sequences at most")));
    }
    let mut conversation = Conversation::default();
    for said in params.messages {
        conversation.push(message(said)?).map_err(|error| wrong(&error.to_string()))?;
    }
    Ok(Sample {
        server: server.to_owned(),
        model: settings.model.clone(),
        system: params.system_prompt.unwrap_or_default(),
        conversation,
        output_tokens_max: tokens(params.max_tokens, settings.output_tokens_max),
        temperature: params.temperature,
        stop: params.stop_sequences,
    })
}

fn wrong(problem: &str) -> Refusal {
    Refusal::Wrong(format!("sampling/createMessage: {problem}"))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits before")]
fn tokens(wanted: Option<f64>, tokens_max: u32) -> u32 {
    wanted.map_or(tokens_max, |wanted| wanted.max(1.0).min(f64::from(tokens_max)) as u32)
}

fn message(Said { role, content }: Said) -> Result<Message, Refusal> {
    let pieces = match content {
        Content::One(piece) => vec![piece],
        Content::Several(pieces) => pieces,
    };
    let parts = pieces.into_iter().map(part).collect::<Result<_, _>>()?;
    let role = match role {
        Speaker::User => Role::User,
        Speaker::Assistant => Role::Assistant,
    };
    Ok(Message { role, parts })
}

fn part(piece: Piece) -> Result<Part, Refusal> {
    match piece.kind.as_str() {
        "text" => Ok(Part::text(piece.text)),
        "image" => media(&piece).map(|media| Part::new(Body::Image(media))),
        "audio" => media(&piece).map(|media| Part::new(Body::Audio(media))),
        other => Err(wrong(&format!("content of type `{}` is not supported", excerpt(other)))),
    }
}

fn media(piece: &Piece) -> Result<Media, Refusal> {
    let bytes = STANDARD.decode(&piece.data).map_err(|_| wrong("`data` must be base64"))?;
    Ok(Media { media_type: piece.mime_type.clone(), source: Source::Bytes(bytes.into()) })
}

/// Returns the consent question for the user. It has the form of an elicitation request, so every user interface can
/// show it.
fn question(wanted: &Sample) -> Value {
    let Sample { output_tokens_max, model, .. } = wanted;
    let model = model.as_ref().map_or_else(|| "a model".to_owned(), |model| format!("`{model}`"));
    let said = wanted.conversation.messages().iter().flat_map(|message| &message.parts).map(shown);
    let system = Some(wanted.system.as_str()).filter(|system| !system.is_empty()).map(str::to_owned);
    let said: Vec<String> = system.into_iter().chain(said).collect();
    let message = format!(
        "may {model} write up to {output_tokens_max} tokens for it? It would be sent:\n{}",
        excerpt(&said.join("\n"))
    );
    let allow = json!({ "type": "boolean", "description": "let it be written" });
    let schema = json!({ "type": "object", "properties": { "allow": allow }, "required": ["allow"] });
    json!({ "message": message, "requestedSchema": schema })
}

fn shown(part: &Part) -> String {
    match &part.body {
        Body::Text { text, .. } => text.clone(),
        Body::Image(media) | Body::Audio(media) => format!("({})", media.media_type),
        // `part` creates no other body.
        Body::Refusal(_)
        | Body::File { .. }
        | Body::Reasoning(_)
        | Body::Call(_)
        | Body::Reply(_)
        | Body::Opaque => String::new(),
    }
}

fn excerpt(text: &str) -> String {
    let all = text.chars().count();
    let rest = if all > SHOWN_CHARS_MAX { format!(" ({all} characters in all)") } else { String::new() };
    cut(text, SHOWN_CHARS_MAX) + &rest
}

fn told(written: &Sampled) -> String {
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
