"""The google-genai SDK. Prints one JSON object of what the SDK understood."""

import json
import os

from google import genai
from google.genai import errors, types
from pydantic import BaseModel



def client_of(**words):
    options = types.HttpOptions(base_url=os.environ["SERVER"], **words)
    return genai.Client(api_key="sk-scripted", http_options=options)


client = client_of()
beta = client_of(api_version="v1beta")
TOOL = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather",
            description="The weather of a city",
            parameters=types.Schema(
                type="OBJECT", properties={"city": types.Schema(type="STRING")}, required=["city"]
            ),
        )
    ]
)
CONFIG = types.GenerateContentConfig(tools=[TOOL])


class Report(BaseModel):
    city: str
    degrees: int


def round_trip(ask):
    contents = [types.Content(role="user", parts=[types.Part(text="Weather in Paris and Rome?")])]
    first = ask(contents)
    calls = [part.function_call for part in first["parts"] if part.function_call]
    results = [
        types.Part.from_function_response(name=call.name, response={"result": text})
        for call, text in zip(calls, ["21 degrees", "25 degrees"])
    ]
    contents += [types.Content(role="model", parts=first["parts"]), types.Content(role="user", parts=results)]
    last = ask(contents)
    return {
        "finish": first["finish"],
        "calls": [[call.name, call.args] for call in calls],
        "reasoning": "".join(part.text for part in first["parts"] if part.thought),
        "state": [part.thought_signature.hex() for part in first["parts"] if part.thought_signature],
        "text": "".join(part.text for part in last["parts"]),
        "usage": [
            last["usage"].prompt_token_count,
            last["usage"].cached_content_token_count,
            last["usage"].candidates_token_count,
            last["usage"].thoughts_token_count,
        ],
    }


def collect(responses):
    responses = list(responses)
    return {
        "parts": [part for it in responses for part in (it.candidates[0].content.parts or [])],
        "finish": responses[-1].candidates[0].finish_reason.value,
        "usage": responses[-1].usage_metadata,
    }


def whole(contents):
    return collect([client.models.generate_content(model="scripted", contents=contents, config=CONFIG)])


def streamed(contents):
    return collect(beta.models.generate_content_stream(model="scripted", contents=contents, config=CONFIG))


def one(text):
    return client.models.generate_content(model="scripted", contents=text)


def error(run):
    try:
        run()
    except errors.APIError as caught:
        return [type(caught).__name__, caught.status, caught.message]
    return None


def chosen():
    said = {}
    for about, words in {
        "Force": {"mode": "ANY", "allowed_function_names": ["weather"]},
        "Must": {"mode": "ANY"},
        "Never": {"mode": "NONE"},
    }.items():
        choice = types.ToolConfig(function_calling_config=types.FunctionCallingConfig(**words))
        config = types.GenerateContentConfig(tools=[TOOL], tool_config=choice, system_instruction="Be brief")
        said[about] = client.models.generate_content(model="scripted", contents=about, config=config).text
    return said


def broken(run):
    try:
        run()
    except Exception as caught:
        return type(caught).__name__
    return None


parsed = client.models.generate_content(
    model="scripted",
    contents="Report as JSON",
    config=types.GenerateContentConfig(response_mime_type="application/json", response_schema=Report),
)
refusal = one("Refuse").candidates[0]
length = one("Be long")
cited = one("Cite")
blocked = one("Block")
print(
    json.dumps(
        {
            "models": [[model.name for model in it.models.list()] for it in (client, beta)],
            "whole": round_trip(whole),
            "streamed": round_trip(streamed),
            "structured": parsed.parsed.model_dump(),
            "refusal": [refusal.finish_reason.value, refusal.finish_message],
            "length": [length.candidates[0].finish_reason.value, length.text],
            "cited": [cited.text, cited.candidates[0].grounding_metadata.grounding_chunks[0].web.uri],
            "blocked": [blocked.prompt_feedback.block_reason.value, len(blocked.candidates or [])],
            "chosen": chosen(),
            "limited": error(lambda: one("Too fast")),
            "overloaded": error(lambda: one("Too many")),
            "event": error(
                lambda: list(client.models.generate_content_stream(model="scripted", contents="Break inside"))
            ),
            "cut": broken(
                lambda: list(client.models.generate_content_stream(model="scripted", contents="Cut off"))
            ),
            "mismatch": error(lambda: one("Unexpected")),
        }
    )
)
