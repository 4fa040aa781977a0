"""The ollama SDK. Prints one JSON object of what the SDK understood."""

import json
import os

import ollama
from pydantic import BaseModel

client = ollama.Client(host=os.environ["SERVER"])
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Report(BaseModel):
    city: str
    degrees: int


def round_trip(ask):
    messages = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    first = ask(messages)
    messages.append(first["message"])
    for call, text in zip(first["message"]["tool_calls"], ["21 degrees", "25 degrees"]):
        messages.append({"role": "tool", "tool_name": call.function.name, "content": text})
    last = ask(messages)
    return {
        "finish": first["done_reason"],
        "calls": [[call.function.name, call.function.arguments] for call in first["message"]["tool_calls"]],
        "reasoning": first["message"]["thinking"],
        "text": last["message"]["content"],
        "usage": [last["prompt_eval_count"], last["eval_count"]],
    }


def collect(responses):
    responses = list(responses)
    return {
        "message": {
            "role": "assistant",
            "content": "".join(it.message.content or "" for it in responses),
            "thinking": "".join(it.message.thinking or "" for it in responses),
            "tool_calls": [call for it in responses for call in it.message.tool_calls or []],
        },
        "done_reason": responses[-1].done_reason,
        "prompt_eval_count": responses[-1].prompt_eval_count,
        "eval_count": responses[-1].eval_count,
    }


def whole(messages):
    return collect([client.chat(model="scripted", messages=messages, tools=[TOOL])])


def streamed(messages):
    return collect(client.chat(model="scripted", messages=messages, tools=[TOOL], stream=True))


def one(text, **words):
    return client.chat(model="scripted", messages=[{"role": "user", "content": text}], **words)


def error(run):
    try:
        run()
    except ollama.ResponseError as caught:
        return [type(caught).__name__, caught.status_code, caught.error]
    return None


def broken(run):
    try:
        run()
    except Exception as caught:
        return type(caught).__name__
    return None


length = one("Be long")
structured = one("Report as JSON", format=Report.model_json_schema())
print(
    json.dumps(
        {
            "models": [model.model for model in client.list().models],
            "whole": round_trip(whole),
            "streamed": round_trip(streamed),
            "structured": Report.model_validate_json(structured.message.content).model_dump(),
            "refusal": one("Refuse").message.content,
            "length": [length.done_reason, length.message.content],
            "limited": error(lambda: one("Too fast")),
            "overloaded": error(lambda: one("Too many")),
            "event": error(lambda: list(one("Break inside", stream=True))),
            "cut": broken(lambda: list(one("Cut off", stream=True))),
            "mismatch": error(lambda: one("Unexpected")),
        }
    )
)
