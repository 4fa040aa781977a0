"""The anthropic SDK. Prints one JSON object of what the SDK understood."""

import json
import os

import anthropic
from pydantic import BaseModel

client = anthropic.Anthropic(base_url=os.environ["SERVER"], api_key="sk-scripted", max_retries=0)
TOOL = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Report(BaseModel):
    city: str
    degrees: int


def round_trip(ask):
    messages = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    first = ask(messages)
    calls = [block for block in first.content if block.type == "tool_use"]
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": text}
        for call, text in zip(calls, ["21 degrees", "25 degrees"])
    ]
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    last = ask(messages)
    thinking = [block for block in first.content if block.type == "thinking"][0]
    return {
        "finish": first.stop_reason,
        "calls": [[call.id, call.name, call.input] for call in calls],
        "reasoning": [thinking.thinking, thinking.signature],
        "text": "".join(block.text for block in last.content),
        "usage": [
            last.usage.input_tokens,
            last.usage.cache_read_input_tokens,
            last.usage.cache_creation_input_tokens,
            last.usage.output_tokens,
        ],
    }


def whole(messages):
    return client.messages.create(model="scripted", max_tokens=100, messages=messages, tools=[TOOL])


def streamed(messages):
    with client.messages.stream(model="scripted", max_tokens=100, messages=messages, tools=[TOOL]) as stream:
        return stream.get_final_message()


def one(text, **words):
    messages = [{"role": "user", "content": text}]
    return client.messages.create(model="scripted", max_tokens=100, messages=messages, **words)


def error(run):
    try:
        run()
    except anthropic.AnthropicError as caught:
        return [type(caught).__name__, getattr(caught, "type", None), getattr(caught, "api_message", str(caught))]
    return None


def retry_after():
    try:
        one("Too fast")
    except anthropic.RateLimitError as caught:
        return caught.response.headers["retry-after"]
    return None


def chosen():
    said = {}
    for about, choice in {
        "Force": {"type": "tool", "name": "weather"},
        "Must": {"type": "any"},
        "Never": {"type": "none"},
    }.items():
        said[about] = one(about, tools=[TOOL], tool_choice=choice, system="Be brief").content[0].text
    return said


def broken(run):
    try:
        run()
    except Exception as caught:
        return type(caught).__name__
    return None


parsed = client.messages.parse(
    model="scripted", max_tokens=100, messages=[{"role": "user", "content": "Report as JSON"}], output_format=Report
)
refusal = one("Refuse")


def cited(message):
    return [message.content[0].text, message.content[0].citations[0].url]


def cited_streamed():
    messages = [{"role": "user", "content": "Cite"}]
    with client.messages.stream(model="scripted", max_tokens=100, messages=messages) as stream:
        return cited(stream.get_final_message())


length = one("Be long")
print(
    json.dumps(
        {
            "models": [model.id for model in client.models.list()],
            "whole": round_trip(whole),
            "streamed": round_trip(streamed),
            "structured": parsed.parsed_output.model_dump(),
            "refusal": [refusal.stop_reason, refusal.content[0].text],
            "length": [length.stop_reason, length.content[0].text],
            "cited": cited(one("Cite")),
            "cited_streamed": cited_streamed(),
            "chosen": chosen(),
            "limited": error(lambda: one("Too fast")),
            "retry_after": retry_after(),
            "overloaded": error(lambda: one("Too many")),
            "event": error(lambda: list(one("Break inside", stream=True))),
            "cut": broken(lambda: list(one("Cut off", stream=True))),
            "mismatch": error(lambda: one("Unexpected")),
        }
    )
)
