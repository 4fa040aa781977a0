"""Uses the server through the official client, as a program would, and prints what it saw as JSON.

Every object and event is validated with the pydantic types of the client itself, and fields that a type does not know
are reported.
"""

import json
import os
import sys

import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

client = openai.OpenAI(
    base_url=os.environ["SERVER"] + "/v1", api_key=os.environ["KEY"], max_retries=0, timeout=20
)
EVENT = TypeAdapter(ResponseStreamEvent)
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a town.",
    "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    "strict": False,
}


def extras(value, path=""):
    """Returns the paths of all fields that the client's types do not declare."""
    found = []
    if isinstance(value, BaseModel):
        # The client adds `parsed` to its own copy of a text.
        found += [f"{path}.{name}" for name in (value.model_extra or {}) if name != "parsed"]
        for name in type(value).model_fields:
            found += extras(getattr(value, name, None), f"{path}.{name}")
    elif isinstance(value, list):
        for entry in value:
            found += extras(entry, path + "[]")
    return found


def checked(response):
    """Validates a response strictly and returns the unknown fields."""
    return extras(Response.model_validate(json.loads(response.to_json())))


def create(model):
    response = client.responses.create(
        model=model,
        instructions="Be brief.",
        input=[
            {"role": "developer", "content": "Answer in English."},
            {"role": "user", "content": "Hi"},
            {"type": "message", "role": "assistant", "phase": "commentary", "id": "msg_1", "status": "completed",
             "content": [{"type": "output_text", "text": "Hello.", "annotations": []}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Again."}]},
        ],
        metadata={"a": "b"},
        temperature=0.5,
    )
    return {
        "text": response.output_text,
        "status": response.status,
        "extras": checked(response),
        "usage": response.usage.to_dict(),
        "id": response.id,
        "metadata": response.metadata,
    }


def functions(model):
    first = client.responses.create(model=model, input="Weather in Oslo?", tools=[WEATHER])
    call = first.output[-1]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "31 degrees"}
    second = client.responses.create(
        model=model, previous_response_id=first.id, input=[output], tools=[WEATHER]
    )
    return {
        "call": [call.type, call.name, json.loads(call.arguments), first.status],
        "text": second.output_text,
        "previous": second.previous_response_id == first.id,
        "extras": checked(first) + checked(second),
    }


def failed_call(model):
    """Gets a failed call of an MCP server, and sends its item back."""
    first = client.responses.create(
        model=model, input="Add.", tools=[{"type": "mcp", "server_label": "docs"}]
    )
    call = first.output[0]
    client.responses.create(
        model=model, input=[item.to_dict() for item in first.output] + [{"role": "user", "content": "Why?"}]
    )
    return {
        "types": [type(call).__name__, type(call.error).__name__],
        "call": [call.status, call.output],
        "content": call.error.content,
        "extras": checked(first),
    }


def stream(model):
    kinds, numbers, unknown = [], [], []
    with client.responses.stream(model=model, input="Stream, please.") as events:
        for event in events:
            if event.type.endswith(".delta") and hasattr(event, "snapshot"):
                kinds.append(event.type)
                continue
            kinds.append(event.type)
            numbers.append(event.sequence_number)
        final = events.get_final_response()
    for event in client.responses.create(model=model, input="Stream, please.", stream=True):
        unknown += extras(EVENT.validate_python(json.loads(event.to_json())))
    return {"kinds": kinds, "text": final.output_text, "extras": unknown, "id": final.id}


class Place(BaseModel):
    town: str
    degrees: float


def parse(model):
    """Gets an answer as an object of a class, whole and streamed."""
    response = client.responses.parse(model=model, input="Parse this.", text_format=Place)
    with client.responses.stream(model=model, input="Parse this.", text_format=Place) as events:
        for event in events:
            pass
        streamed = events.get_final_response()
    shown = [place.output_parsed.model_dump() for place in (response, streamed)]
    return {"parsed": shown, "types": [type(one.output_parsed).__name__ for one in (response, streamed)]}


def refusal(model):
    """Gets a refusal instead of an object of a class, whole and streamed."""
    response = client.responses.parse(model=model, input="Parse this.", text_format=Place)
    deltas, unknown = [], []
    with client.responses.stream(model=model, input="Parse this.", text_format=Place) as events:
        for event in events:
            if event.type == "response.refusal.delta":
                deltas.append(event.delta)
        streamed = events.get_final_response()
    for event in client.responses.create(model=model, input="Parse this.", stream=True):
        unknown += extras(EVENT.validate_python(json.loads(event.to_json())))
    both = [response, streamed]
    return {
        "refusals": [one.output[-1].content[0].refusal for one in both],
        "parsed": [one.output_parsed for one in both],
        "streamed": "".join(deltas),
        "extras": unknown + checked(response),
    }


def reply_parts(model):
    """Gets a reasoning summary and citations, whole and streamed."""
    response = client.responses.create(model=model, input="x")
    unknown = []
    for event in client.responses.create(model=model, input="x", stream=True):
        unknown += extras(EVENT.validate_python(json.loads(event.to_json())))
    thought, message = response.output
    return {
        "summary": [part.text for part in thought.summary],
        "citations": [
            [one.url, one.title, one.start_index, one.end_index] for one in message.content[0].annotations
        ],
        "extras": unknown + checked(response),
    }


def cancel(model):
    """Cancels a background response, twice: the second request changes nothing."""
    started = client.responses.create(model=model, input="Block", background=True)
    cancelled = client.responses.cancel(started.id)
    second = client.responses.cancel(started.id)
    foreground = client.responses.create(model=model, input="Hi")
    try:
        client.responses.cancel(foreground.id)
        refused = "accepted"
    except openai.BadRequestError as error:
        refused = error.status_code
    try:
        client.responses.cancel("resp_none")
        missing = "found"
    except openai.NotFoundError as error:
        missing = error.status_code
    return {
        "statuses": [one.status for one in (started, cancelled, second, client.responses.retrieve(started.id))],
        "refused": refused,
        "missing": missing,
        "extras": checked(cancelled),
    }


def stored(model):
    response = client.responses.create(model=model, input="Keep this.", metadata={"k": "v"})
    again = client.responses.retrieve(response.id)
    items = client.responses.input_items.list(response.id)
    client.responses.delete(response.id)
    try:
        client.responses.retrieve(response.id)
        gone = "found"
    except openai.NotFoundError as error:
        gone = error.status_code
    unstored = client.responses.create(model=model, input="Forget this.", store=False)
    try:
        client.responses.retrieve(unstored.id)
        kept = "found"
    except openai.NotFoundError as error:
        kept = error.status_code
    return {
        "same": again.to_dict() == response.to_dict(),
        "items": [[item.type, item.content[0].text] for item in items.data],
        "gone": gone,
        "kept": kept,
    }


def conversations(model):
    conversation = client.conversations.create(
        metadata={"topic": "demo"}, items=[{"type": "message", "role": "user", "content": "I am Ann."}]
    )
    response = client.responses.create(model=model, conversation=conversation.id, input="Who am I?")
    items = client.conversations.items.list(conversation.id, order="asc")
    first = items.data[0].id
    client.conversations.items.create(
        conversation.id, items=[{"type": "message", "role": "user", "content": "One more."}]
    )
    one = client.conversations.items.retrieve(first, conversation_id=conversation.id)
    client.conversations.items.delete(first, conversation_id=conversation.id)
    left = client.conversations.items.list(conversation.id)
    updated = client.conversations.update(conversation.id, metadata={"topic": "other"})
    again = client.conversations.retrieve(conversation.id)
    deleted = client.conversations.delete(conversation.id)
    try:
        client.conversations.retrieve(conversation.id)
        gone = "found"
    except openai.NotFoundError as error:
        gone = error.status_code
    return {
        "text": response.output_text,
        "conversation": response.conversation.id == conversation.id,
        "items": [[item.type, item.role, item.content[0].text] for item in items.data],
        "one": one.content[0].text,
        "left": len(left.data),
        "metadata": [conversation.metadata, updated.metadata, again.metadata],
        "deleted": deleted.deleted,
        "gone": gone,
    }


def turn(connection, **body):
    """Sends one request and returns the final response, or the code of the error."""
    connection.response.create(**body)
    kinds = []
    while True:
        event = json.loads(connection.recv_bytes())
        kinds.append(event["type"])
        if event["type"] == "error":
            return event["error"]["code"]
        if event["type"] in ("response.completed", "response.failed", "response.incomplete"):
            assert kinds[0] == "response.created", kinds
            return Response.model_validate(event["response"])


def websocket(model):
    with client.responses.connect() as connection:
        first = turn(connection, model=model, input="One.", store=False)
        second = turn(connection, model=model, input="Two.", store=False, previous_response_id=first.id)
        output = {"type": "function_call_output", "call_id": "none", "output": "x"}
        wrong = turn(connection, model=model, input=[output], store=False, previous_response_id=second.id)
        evicted = turn(connection, model=model, input="x", store=False, previous_response_id=second.id)
        clean = turn(connection, model=model, input="Three.", store=False)
    with client.responses.connect() as connection:
        other = turn(connection, model=model, input="x", store=False, previous_response_id=clean.id)
        fresh = turn(connection, model=model, input="Four.", store=False)
    return {
        "texts": [response.output_text for response in (first, second, clean, fresh)],
        "errors": [wrong, evicted, other],
    }


def steer(model):
    """Sends input while a response is in progress, and reads the events up to the end of the successor."""
    fields = {"model": model, "instructions": "Be brief.", "store": False}
    if "TOOLS" in os.environ:
        fields["tools"] = [{"type": "mcp", "server_label": os.environ["TOOLS"]}]
    events, ended = [], []
    with client.responses.connect() as connection:
        connection.response.create(input="One.", **fields)
        while len(ended) < 2:
            event = connection.recv()
            events.append(event)
            if event.type == "response.created" and not ended:
                first = event.response.id
                connection.response.steer(previous_response_id=first, input="Two.")
                part = {"type": "input_text", "text": "Three."}
                message = {"type": "message", "role": "user", "content": [part]}
                connection.response.steer(previous_response_id=first, input=[message])
                connection.response.steer(previous_response_id="resp_other", input="Nobody reads this.")
            if event.type in ("response.completed", "response.incomplete"):
                ended.append(event.response)
    steers = [event for event in events if event.type.startswith("response.steer.")]
    return {
        "steers": [[type(event).__name__, event.steer.previous_response_id == first] for event in steers],
        "code": [event.error.code for event in steers if event.type == "response.steer.failed"],
        "texts": [response.output_text for response in ended],
        "reasons": [response.incomplete_details and response.incomplete_details.reason for response in ended],
        "continues": ended[1].previous_response_id == first,
        "instructions": ended[1].instructions,
        "extras": [path for event in steers for path in extras(event)]
        + [path for response in ended for path in extras(response.incomplete_details)],
    }


def answer(request, approve=True):
    return {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}


def approvals(model):
    tools = [{"type": "mcp", "server_label": "docs", "require_approval": "always"}]
    unknown = []
    for event in client.responses.create(model=model, input="Add.", tools=tools, stream=True):
        unknown += extras(EVENT.validate_python(json.loads(event.to_json())))
        if event.type == "response.completed":
            first = event.response
    request = first.output[-1]
    with client.responses.stream(
        model=model, previous_response_id=first.id, input=[answer(request)], tools=tools
    ) as events:
        for event in events:
            if not (event.type.endswith(".delta") and hasattr(event, "snapshot")):
                unknown += extras(EVENT.validate_python(json.loads(event.to_json())))
        second = events.get_final_response()
    # A client that keeps the history itself sends all items again.
    history = [{"role": "user", "content": "Add."}]
    third = client.responses.create(model=model, input=history, tools=tools)
    history += [item.to_dict() for item in third.output] + [answer(third.output[-1])]
    fourth = client.responses.create(model=model, input=history, tools=tools)
    names = ("presence_penalty", "frequency_penalty", "store")
    return {
        "asked": [request.server_label, request.name, json.loads(request.arguments)],
        "linked": second.output[0].approval_request_id == request.id,
        "text": second.output_text,
        "history_text": fourth.output_text,
        "extras": [path for path in unknown if path.rsplit(".")[-1] not in names],
    }


def stateless_approvals(model):
    """Answers an approval request of a response that the server does not store, with its items."""
    tools = [{"type": "mcp", "server_label": "docs", "require_approval": "always"}]
    fields = {"model": model, "store": False, "tools": tools}
    unknown = []
    history = [{"role": "user", "content": "Add."}]
    first = client.responses.create(input=history, **fields)
    unknown += checked(first)
    history += [item.to_dict() for item in first.output] + [answer(first.output[-1])]
    with client.responses.stream(input=history, **fields) as events:
        for event in events:
            pass
        second = events.get_final_response()
    history += [item.to_dict() for item in second.output]
    history.append({"role": "user", "content": "Thanks."})
    third = client.responses.create(input=history, **fields)
    names = ("presence_penalty", "frequency_penalty", "store")
    return {
        "types": [item.type for item in first.output],
        "linked": second.output[0].approval_request_id == first.output[-1].id,
        "texts": [second.output_text, third.output_text],
        "extras": [path for path in unknown if path.rsplit(".")[-1] not in names],
    }


def stateless(model):
    """Chains responses that the server does not store, whole and streamed."""
    fields = {"model": model, "store": False, "include": ["reasoning.encrypted_content"], "tools": [WEATHER]}
    unknown, texts = [], []
    history = [{"role": "user", "content": "The weather in Oslo?"}]
    for turn in range(2):
        response = client.responses.create(input=history, **fields)
        unknown += checked(response)
        history += [item.to_dict() for item in response.output]
        history += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "31 degrees"}
            for item in response.output
            if item.type == "function_call"
        ]
    texts.append(response.output_text)
    # A stream: items in the order in which they are done, and without ids.
    history.append({"role": "user", "content": "And the weather in Paris?"})
    for turn in range(2):
        done = []
        for event in client.responses.create(input=history, stream=True, **fields):
            unknown += extras(EVENT.validate_python(json.loads(event.to_json())))
            if event.type == "response.output_item.done":
                done.append(event.item.to_dict())
            if event.type == "response.completed":
                texts.append(event.response.output_text)
        for item in done:
            item.pop("id")
        history += done
        history += [
            {"type": "function_call_output", "call_id": item["call_id"], "output": "7 degrees"}
            for item in done
            if item["type"] == "function_call"
        ]
    # The name of the function is in the event since a newer version of the client.
    names = ("presence_penalty", "frequency_penalty", "store", "name")
    return {"texts": texts, "extras": [path for path in unknown if path.rsplit(".")[-1] not in names]}


def server_url(model):
    """Uses an MCP server by its address."""
    tool = {"type": "mcp", "server_label": "far", "server_url": os.environ["MCP_URL"], "authorization": "t",
            "require_approval": "never"}
    response = client.responses.create(model=model, input="Echo.", tools=[tool])
    names = ("presence_penalty", "frequency_penalty", "store")
    return {
        "types": [item.type for item in response.output],
        "output": response.output[1].output,
        "text": response.output_text,
        "shown_url": response.tools[0].server_url.endswith("/<redacted>"),
        "extras": [path for path in checked(response) if path.rsplit(".")[-1] not in names],
    }


def retry(model):
    """Lets the client itself send the request again after a cut connection."""
    tools = [{"type": "mcp", "server_label": "docs"}]
    retrying = client.with_options(max_retries=2)
    response = retrying.responses.create(
        model=model, input="Add.", tools=tools, extra_headers={"Idempotency-Key": "note-1"}
    )
    return {"text": response.output_text, "types": [item.type for item in response.output], "id": response.id}


def retry_without_key(model):
    """Lets the client itself send the request again after a cut connection, as it does by default."""
    tools = [{"type": "mcp", "server_label": "docs"}]
    try:
        client.with_options(max_retries=2).responses.create(model=model, input="Add.", tools=tools)
    except openai.ConflictError as error:
        return {"code": error.code, "message": error.message}


def stream_retry(model):
    """Sends a request again after its stream was cut, as a program does: the client does not repeat streams."""
    fields = {"model": model, "input": "Add.", "tools": [{"type": "mcp", "server_label": "docs"}], "stream": True}
    attempts = []
    while len(attempts) < 5 and (not attempts or attempts[-1]["error"]):
        attempt = {"kinds": [], "ids": [], "error": None}
        attempts.append(attempt)
        try:
            for event in client.responses.create(extra_headers={"Idempotency-Key": "note-2"}, **fields):
                attempt["kinds"].append(event.type)
                attempt["ids"] += [event.response.id] if hasattr(event, "response") else []
        except Exception as error:
            attempt["error"] = type(error).__name__
    # A third request, after the response has ended.
    again = client.responses.create(extra_headers={"Idempotency-Key": "note-2"}, **fields)
    return {"attempts": attempts, "again": [event.type for event in again]}


def errors(model):
    seen = {}
    for name, body in {
        "model": {"model": "nothing", "input": "x"},
        "previous": {"model": model, "input": "x", "previous_response_id": "resp_none"},
        "output": {
            "model": model,
            "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}],
        },
        "choice": {"model": model, "input": "x", "tool_choice": {"type": "function", "name": "none"}},
    }.items():
        try:
            client.responses.create(**body)
            seen[name] = "accepted"
        except openai.BadRequestError as error:
            seen[name] = [error.param, error.code]
    return seen


def own_events(model):
    """Reads streams with events that the client does not know, with both interfaces of the client."""
    own, texts = [], []
    for headers in ({}, {"haft-events": "off"}):
        kinds = []
        for event in client.responses.create(model=model, input="x", stream=True, extra_headers=headers):
            kinds.append(event.type)
            if event.type == "response.completed":
                texts.append(event.response.output_text)
        own.append([kind for kind in kinds if kind.startswith("haft:")])
    with client.responses.stream(model=model, input="x") as events:
        helper = [event.type for event in events if event.type.startswith("haft:")]
        texts.append(events.get_final_response().output_text)
    return {"plain": own[0], "strict": own[1], "helper": helper, "texts": texts}


def models():
    return [model.id for model in client.models.list().data]


def main():
    model = os.environ.get("MODEL", "openai/m")
    parts = {"create": create, "functions": functions, "stream": stream, "stored": stored, "errors": errors,
             "conversations": conversations, "websocket": websocket, "steer": steer, "approvals": approvals,
             "stateless": stateless, "stateless_approvals": stateless_approvals, "server_url": server_url,
             "own_events": own_events, "parse": parse, "cancel": cancel, "refusal": refusal,
             "reply_parts": reply_parts, "retry": retry,
             "retry_without_key": retry_without_key, "stream_retry": stream_retry, "failed_call": failed_call}
    wanted = sys.argv[1]
    print(json.dumps(models() if wanted == "models" else parts[wanted](model)))


main()
