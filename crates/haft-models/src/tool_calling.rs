//! Passes tools to models: through the provider's API, in the prompt, or not at all.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use futures_util::{StreamExt, stream};
use haft_core::conversation::Conversation;
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_reply::ReplyFold;
use haft_core::model_request::ModelRequest;
pub use haft_core::settings::models::ToolCalling;

use crate::conversation_cache::{ConversationCache, ConversationState};
use crate::fallback::StartedReply;
use crate::prompted_tools::{PromptedConversation, read_calls};
use crate::wire::DecodeContext;

/// The maximum number of models that are remembered as needing tools in the prompt.
const FOUND_MAX: usize = 1000;

/// A callback that haft calls when it finds that a model needs its tools in the prompt.
pub type ToolCallingCallback = Box<dyn Fn(&str) + Send + Sync>;

/// A provider that passes tools to each model in the way that the model supports. For an unknown model, native tools
/// are tried first; if its provider rejects them, this request and all later ones describe the tools in the prompt.
pub struct ToolCallingProvider {
    inner: Box<dyn ModelProvider>,
    configured: HashMap<String, ToolCalling>,
    found: Mutex<HashMap<String, ToolCalling>>,
    learned: Option<ToolCallingCallback>,
    plain: ConversationCache<PromptedConversation>,
}

impl ToolCallingProvider {
    /// Wraps a provider. `configured` contains the operator's setting for each model. It takes precedence over what haft
    /// learns from errors of the provider.
    pub fn new(inner: Box<dyn ModelProvider>, configured: HashMap<String, ToolCalling>) -> Self {
        Self {
            inner,
            configured,
            found: Mutex::default(),
            learned: None,
            plain: ConversationCache::default(),
        }
    }

    /// Sets the models that are known to need their tools in the prompt. Calls `learned` for each further model whose
    /// provider refuses tools.
    #[must_use]
    pub fn with_known_models(
        self,
        known: impl IntoIterator<Item = String>,
        learned: ToolCallingCallback,
    ) -> Self {
        let known = known.into_iter().take(FOUND_MAX).map(|model| (model, ToolCalling::Prompted)).collect();
        Self { found: Mutex::new(known), learned: Some(learned), ..self }
    }

    fn known(&self, model: &str) -> Option<ToolCalling> {
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner).get(model).copied();
        self.configured.get(model).copied().or_else(found)
    }

    fn remember(&self, model: &str) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() < FOUND_MAX {
            found.insert(model.to_owned(), ToolCalling::Prompted);
        }
        drop(found);
        if let Some(learned) = &self.learned {
            learned(model);
        }
    }

    /// Sends the request with native tools. If the provider reports that the model does not support tools, sends it
    /// again with the tools in the prompt.
    async fn try_native_tools(&self, request: ModelRequest, cx: ModelContext) -> ReplyStream<'_> {
        let begun = StartedReply::of(self.inner.ask(request.clone(), &cx)).await;
        match &begun.first {
            Err(error) if error.kind == ModelErrorKind::ToolsUnsupported => {
                self.remember(&request.model);
                self.ask_prompted(request, &cx)
            }
            Ok(_) | Err(_) => begun.into_stream(),
        }
    }

    /// Sends the request without tools. The model can make no calls, so the reply is streamed; earlier calls still
    /// appear as text.
    fn ask_plain(&self, request: &ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        match self.rewritten(request) {
            Ok(plain) => self.inner.ask(plain, cx),
            Err(error) => stream::iter([Err(error)]).boxed(),
        }
    }

    /// Sends the request with the tools in the prompt. Calls can be parsed only from the complete text, so the reply
    /// is not streamed.
    fn ask_prompted(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let decode_context =
            DecodeContext { turn: request.conversation.messages().len(), ..DecodeContext::default() };
        let cx = cx.clone();
        let reply = async move {
            let mut replies = self.inner.ask(self.rewritten(&request)?, &cx);
            let mut fold = ReplyFold::default();
            while let Some(event) = replies.next().await {
                fold.apply(&event?);
            }
            Ok(read_calls(fold.finish(), &decode_context).into_events())
        };
        stream::once(reply).flat_map(|reply| stream::iter(each(reply))).boxed()
    }

    fn rewritten(&self, request: &ModelRequest) -> Result<ModelRequest, ModelError> {
        let mut plain = self.plain.take(&request.conversation);
        let rewritten = plain.rewrite(request);
        self.plain.put(plain);
        rewritten.map_err(|error| ModelError::new(ModelErrorKind::InvalidRequest, error.to_string()))
    }
}

impl ModelProvider for ToolCallingProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        let offers_none = request.tools.is_empty();
        match self.known(&request.model) {
            Some(ToolCalling::Native) => self.inner.ask(request, cx),
            Some(ToolCalling::None) => self.ask_plain(&ModelRequest { tools: [].into(), ..request }, cx),
            Some(ToolCalling::Prompted) if offers_none => self.ask_plain(&request, cx),
            Some(ToolCalling::Prompted) => self.ask_prompted(request, cx),
            None if offers_none => self.inner.ask(request, cx),
            None => stream::once(self.try_native_tools(request, cx.clone())).flatten().boxed(),
        }
    }
}

fn each(reply: Result<Vec<ModelEvent>, ModelError>) -> Vec<Result<ModelEvent, ModelError>> {
    match reply {
        Ok(events) => events.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    }
}

impl ConversationState for PromptedConversation {
    fn knows(&self, conversation: &Conversation) -> Option<usize> {
        self.known_messages(conversation)
    }

    fn bytes(&self) -> usize {
        self.text_bytes()
    }
}

impl fmt::Debug for ToolCallingProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolCallingProvider")
            .field("inner", &self.inner.name())
            .field("configured", &self.configured)
            .finish_non_exhaustive()
    }
}
