"""The openai SDK on /v1/chat/completions. Prints one JSON object of what the SDK understood."""

import json
import os

import openai
from pydantic import BaseModel

client = openai.OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="sk-scripted", max_retries=0)
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
    calls = first.choices[0].message.tool_calls
    messages.append(first.choices[0].message.model_dump(exclude_none=True))
    for call, degrees in zip(calls, ["21 degrees", "25 degrees"]):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": degrees})
    last = ask(messages)
    return {
        "finish": first.choices[0].finish_reason,
        "calls": [[call.id, call.function.name, json.loads(call.function.arguments)] for call in calls],
        "reasoning": first.choices[0].message.model_extra.get("reasoning_content"),
        "text": last.choices[0].message.content,
        "usage": [
            last.usage.prompt_tokens,
            last.usage.prompt_tokens_details.cached_tokens,
            last.usage.completion_tokens,
            last.usage.completion_tokens_details.reasoning_tokens,
        ],
    }


def whole(messages):
    return client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL])


def streamed(messages):
    with client.chat.completions.stream(
        model="scripted", messages=messages, tools=[TOOL], stream_options={"include_usage": True}
    ) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def parsed():
    messages = [{"role": "user", "content": "Report as JSON"}]
    answer = client.chat.completions.parse(model="scripted", messages=messages, response_format=Report)
    return answer.choices[0].message.parsed.model_dump()


def one(text, client=client):
    return client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": text}])


def error(run):
    try:
        run()
    except openai.APIError as caught:
        return [type(caught).__name__, caught.code, caught.body["message"]]
    return None


def broken(run):
    try:
        run()
    except Exception as caught:
        return type(caught).__name__
    return None


def drained(text):
    messages = [{"role": "user", "content": text}]
    return [chunk.id for chunk in client.chat.completions.create(model="scripted", messages=messages, stream=True)]


def chosen():
    said = {}
    for about, choice in {
        "Force": {"type": "function", "function": {"name": "weather"}},
        "Must": "required",
        "Never": "none",
        "Among": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
    }.items():
        messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": about}]
        answer = client.chat.completions.create(model="scripted", messages=messages, tools=[TOOL], tool_choice=choice)
        said[about] = answer.choices[0].message.content
    return said


refusal = one("Refuse").choices[0]
length = one("Be long").choices[0]
cited = one("Cite").choices[0].message
print(
    json.dumps(
        {
            "models": [model.id for model in client.models.list()],
            "whole": round_trip(whole),
            "streamed": round_trip(streamed),
            "structured": parsed(),
            "refusal": [refusal.finish_reason, refusal.message.refusal],
            "length": [length.finish_reason, length.message.content],
            "cited": [cited.content, cited.annotations[0].url_citation.url],
            "blocked": one("Block").choices[0].finish_reason,
            "chosen": chosen(),
            "limited": error(lambda: one("Too fast")),
            "overloaded": error(lambda: one("Too many")),
            "event": error(lambda: drained("Break inside")),
            "cut": broken(lambda: drained("Cut off")),
            "retried": one("Busy", client.with_options(max_retries=2)).choices[0].message.content,
            "mismatch": error(lambda: one("Unexpected")),
            "key": error(lambda: one("Refuse", client.with_options(api_key="sk-wrong"))),
        }
    )
)
