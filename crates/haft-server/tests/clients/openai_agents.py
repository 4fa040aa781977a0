"""Uses the server through the OpenAI Agents SDK, and prints what it saw as JSON."""

import asyncio
import json
import os

from agents import (
    Agent,
    HostedMCPTool,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=os.environ["SERVER"] + "/v1", api_key=os.environ["KEY"], max_retries=0)
model = OpenAIResponsesModel(model=os.environ["MODEL"], openai_client=client)
asked = []


@function_tool
def get_weather(city: str) -> str:
    """Returns the weather of a city."""
    return "sunny in " + city


def approve(request):
    asked.append([request.data.server_label, request.data.name, json.loads(request.data.arguments)])
    return {"approve": True}


async def main():
    seen = {}
    weather = Agent(name="weather", instructions="Be brief.", tools=[get_weather], model=model)
    seen["function"] = (await Runner.run(weather, "What is the weather in Paris?")).final_output
    plain = Agent(name="plain", model=model)
    for name, session in [
        ("session", SQLiteSession("one")),
        ("conversation", OpenAIConversationsSession(openai_client=client)),
    ]:
        first = await Runner.run(plain, "Hi", session=session)
        second = await Runner.run(plain, "Again", session=session)
        seen[name] = [first.final_output, second.final_output]
    streamed = Runner.run_streamed(plain, "Hi")
    kinds = {event.type async for event in streamed.stream_events()}
    seen["streamed"] = [streamed.final_output, "raw_response_event" in kinds]
    config = {"type": "mcp", "server_label": "docs", "require_approval": "always"}
    tool = HostedMCPTool(tool_config=config, on_approval_request=approve)
    notes = Agent(name="notes", tools=[tool], model=model)
    seen["mcp"] = (await Runner.run(notes, "Add a note.")).final_output
    seen["asked"] = asked
    print(json.dumps(seen))


asyncio.run(main())
