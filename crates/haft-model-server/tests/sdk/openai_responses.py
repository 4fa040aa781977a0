"""The openai SDK on /v1/responses. Prints one JSON object of what the SDK understood."""

import json
import os

import openai
from pydantic import BaseModel

client = openai.OpenAI(base_url=os.environ["SERVER"] + "/v1", api_key="sk-scripted", max_retries=0)
TOOL = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
INCLUDE = ["reasoning.encrypted_content"]


class Report(BaseModel):
    city: str
    degrees: int


def calls_of(response):
    return [item for item in response.output if item.type == "function_call"]


def outputs(response):
    answers = zip(calls_of(response), ["21 degrees", "25 degrees"])
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text} for call, text in answers]


def told(first, last):
    reasoning = [item for item in first.output if item.type == "reasoning"][0]
    return {
        "finish": first.status,
        "calls": [[call.call_id, call.name, json.loads(call.arguments)] for call in calls_of(first)],
        "reasoning": [reasoning.summary[0].text, reasoning.encrypted_content],
        "text": last.output_text,
        "usage": [
            last.usage.input_tokens,
            last.usage.input_tokens_details.cached_tokens,
            last.usage.output_tokens,
            last.usage.output_tokens_details.reasoning_tokens,
        ],
    }


def round_trip(ask):
    items = [{"role": "user", "content": "Weather in Paris and Rome?"}]
    first = ask(input=items, store=False, include=INCLUDE)
    items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in first.output]
    return told(first, ask(input=items + outputs(first), store=False, include=INCLUDE))


def remembered():
    first = whole(input="Weather in Paris and Rome?", include=INCLUDE)
    return told(first, whole(input=outputs(first), previous_response_id=first.id))


def whole(**words):
    return client.responses.create(model="scripted", tools=[TOOL], **words)


def streamed(**words):
    with client.responses.stream(model="scripted", tools=[TOOL], **words) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def one(text):
    return client.responses.create(model="scripted", input=text)


def drained(text):
    return [event.type for event in client.responses.create(model="scripted", input=text, stream=True)]


def error(run):
    try:
        run()
    except openai.APIError as caught:
        return [type(caught).__name__, caught.code, caught.body["message"]]
    return None


def chosen():
    said = {}
    for about, choice in {
        "Force": {"type": "function", "name": "weather"},
        "Must": "required",
        "Never": "none",
        "Among": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
    }.items():
        said[about] = whole(input=about, instructions="Be brief", tool_choice=choice).output_text
    return said


def broken(run):
    try:
        run()
    except Exception as caught:
        return type(caught).__name__
    return None


def cited(answer):
    return [answer.output_text, answer.output[0].content[0].annotations[0].url]


def cited_streamed():
    with client.responses.stream(model="scripted", input="Cite") as stream:
        return cited(stream.get_final_response())


length = one("Be long")
blocked = one("Block")
print(
    json.dumps(
        {
            "whole": round_trip(whole),
            "streamed": round_trip(streamed),
            "remembered": remembered(),
            "structured": client.responses.parse(
                model="scripted", input="Report as JSON", text_format=Report
            ).output_parsed.model_dump(),
            "refusal": one("Refuse").output[0].content[0].refusal,
            "length": [length.status, length.incomplete_details.reason, length.output_text],
            "length_events": drained("Be long")[-1],
            "cited": cited(one("Cite")),
            "cited_streamed": cited_streamed(),
            "blocked": [blocked.status, blocked.incomplete_details.reason],
            "chosen": chosen(),
            "limited": error(lambda: one("Too fast")),
            "overloaded": error(lambda: one("Too many")),
            "event": error(lambda: drained("Break inside")),
            "cut": broken(lambda: drained("Cut off")),
            "mismatch": error(lambda: one("Unexpected")),
            "stranger": error(lambda: whole(input="Hello", previous_response_id="resp_none")),
        }
    )
)
