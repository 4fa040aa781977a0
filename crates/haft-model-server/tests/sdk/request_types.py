"""Checks request bodies against the request types of the official SDKs. A field that a type does not have is an error.

Reads lines `{"format": ..., "body": ...}` and writes a JSON list of the complaints.
"""
import json
import sys
import typing

import pydantic
import typing_extensions
from anthropic.types import message_create_params as anthropic_params
from google.genai import types as genai
from ollama import _types as ollama
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as response_params

COMPLAINTS_MAX = 20

# Fields that an API takes and its newest SDK does not have any more. The Claude models that take them are older than
# that SDK; haft does not send them to newer ones (`data/models.json`).
BEYOND_SDK = {"anthropic": ["temperature", "top_p", "top_k"]}

FORBID = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def parts(annotation):
    """The types inside an annotation."""
    yield annotation
    for inner in typing.get_args(annotation):
        yield from parts(inner)


def forbid(annotation, seen):
    """Forbids unknown keys in every typed dictionary that an annotation reaches."""
    for part in parts(annotation):
        if typing_extensions.is_typeddict(part) and part not in seen:
            seen.add(part)
            part.__pydantic_config__ = FORBID
            for inner in typing_extensions.get_type_hints(part, include_extras=True).values():
                forbid(inner, seen)


def adapter(dictionary):
    forbid(dictionary, set())
    return pydantic.TypeAdapter(dictionary)


def consume(value):
    """Reads everything: pydantic checks the elements of an `Iterable` only when it is read."""
    if isinstance(value, dict):
        return {key: consume(inner) for key, inner in value.items()}
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return value
    return [consume(inner) for inner in value]


def strict(model, done):
    """Forbids unknown fields in a model and in every model inside it, the innermost first."""
    if model in done:
        return
    done.add(model)
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            if isinstance(part, type) and issubclass(part, pydantic.BaseModel):
                strict(part, done)
    model.model_config["extra"] = "forbid"
    model.model_rebuild(force=True)


class GeminiRequest(pydantic.BaseModel):
    """The body of `generateContent`. The SDK has types for its parts only."""

    model_config = pydantic.ConfigDict(extra="forbid")
    contents: list[genai.Content]
    systemInstruction: typing.Optional[genai.Content] = None
    tools: typing.Optional[list[genai.Tool]] = None
    toolConfig: typing.Optional[genai.ToolConfig] = None
    generationConfig: typing.Optional[genai.GenerationConfig] = None
    safetySettings: typing.Optional[list[genai.SafetySetting]] = None
    cachedContent: typing.Optional[str] = None


strict(ollama.ChatRequest, set())
DICTIONARIES = {
    "openai_chat": (adapter(chat_params.CompletionCreateParamsNonStreaming), adapter(chat_params.CompletionCreateParamsStreaming)),
    "openai_responses": (adapter(response_params.ResponseCreateParamsNonStreaming), adapter(response_params.ResponseCreateParamsStreaming)),
    "anthropic": (adapter(anthropic_params.MessageCreateParamsNonStreaming), adapter(anthropic_params.MessageCreateParamsStreaming)),
}
MODELS = {"gemini": GeminiRequest, "ollama": ollama.ChatRequest}


def check(format, body):
    body = {key: value for key, value in body.items() if key not in BEYOND_SDK.get(format, [])}
    if format in MODELS:
        MODELS[format].model_validate(body)
    else:
        whole, streamed = DICTIONARIES[format]
        consume((streamed if body.get("stream") else whole).validate_python(body))


complaints = []
for line in sys.stdin:
    asked = json.loads(line)
    try:
        check(asked["format"], asked["body"])
    except pydantic.ValidationError as error:
        found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
        model = asked["body"].get("model", "")
        complaints.append(f"{asked['format']} {model}: {found}: {json.dumps(asked['body'])[:600]}")
    if len(complaints) == COMPLAINTS_MAX:
        break
print(json.dumps(complaints))
