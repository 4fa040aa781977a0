"""An MCP server with the tools, resources and prompts that the official conformance suite asks for, over standard streams.

It is an ordinary server behind the gateway, which the suite tests over HTTP.
"""
import json, sys, time

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
EMBEDDED = "This is an embedded resource content."


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def ask(method, params):
    """Asks the client, and gives its result."""
    send({"id": "question", "method": method, "params": params})
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == "question":
            return message.get("result") or {"error": message.get("error")}


def text(words):
    return {"type": "text", "text": words}


def image():
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def resource(uri, words, kind="text/plain"):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


def elicit(properties, required=()):
    schema = {"type": "object", "properties": properties, "required": list(required)}
    asked = ask("elicitation/create", {"message": "Please answer", "requestedSchema": schema})
    return [text(f"Elicitation completed: {json.dumps(asked)}")]


def with_logging(_, __):
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        send({"method": "notifications/message", "params": {"level": "info", "data": words}})
        time.sleep(0.05)
    return [text("logged")]


def with_progress(_, meta):
    for done in (0, 50, 100):
        if "progressToken" in meta:
            params = {"progressToken": meta["progressToken"], "progress": done, "total": 100}
            send({"method": "notifications/progress", "params": params})
        time.sleep(0.05)
    return [text("done")]


def sampled(arguments, _):
    messages = [{"role": "user", "content": text(arguments["prompt"])}]
    reply = ask("sampling/createMessage", {"messages": messages, "maxTokens": 100})
    return [text(f"LLM response: {json.dumps(reply)}")]


def elicited(arguments, _):
    fields = {"username": {"type": "string"}, "email": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    asked = ask("elicitation/create", {"message": arguments["message"], "requestedSchema": schema})
    return [text(f"User response: {json.dumps(asked)}")]


def defaults(_, __):
    return elicit({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    })


def enums(_, __):
    options, titled = ["option1", "option2", "option3"], [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    return elicit({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })


WORD = {"type": "string"}
TOOLS = {
    "test_simple_text": ({}, lambda *_: [text("This is a simple text response for testing.")]),
    "test_image_content": ({}, lambda *_: [image()]),
    "test_audio_content": ({}, lambda *_: [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
    "test_embedded_resource": ({}, lambda *_: [resource("test://embedded-resource", EMBEDDED)]),
    "test_multiple_content_types": ({}, lambda *_: [
        text("Multiple content types test:"), image(), resource("test://mixed-content-resource", "{}", "application/json")]),
    "test_tool_with_logging": ({}, with_logging),
    "test_error_handling": ({}, None),
    "test_tool_with_progress": ({}, with_progress),
    "test_sampling": ({"prompt": WORD}, sampled),
    "test_elicitation": ({"message": WORD}, elicited),
    "test_elicitation_sep1034_defaults": ({}, defaults),
    "test_elicitation_sep1330_enums": ({}, enums),
}
RESOURCES = [
    {"uri": "test://static-text", "name": "text", "description": "A text", "mimeType": "text/plain"},
    {"uri": "test://static-binary", "name": "image", "description": "An image", "mimeType": "image/png"},
    {"uri": "test://watched-resource", "name": "watched", "description": "A watched text", "mimeType": "text/plain"},
]
PROMPTS = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}


def call(params):
    arguments, name = params.get("arguments", {}), params["name"]
    if name == "test_error_handling":
        return {"content": [text("This tool intentionally returns an error for testing")], "isError": True}
    return {"content": TOOLS[name][1](arguments, params.get("_meta", {}))}


def read(uri):
    if uri == "test://static-binary":
        return {"contents": [{"uri": uri, "mimeType": "image/png", "blob": PNG}]}
    if uri.startswith("test://template/"):
        words = json.dumps({"id": uri.split("/")[3], "templateTest": True, "data": "Data for ID: " + uri.split("/")[3]})
        return {"contents": [{"uri": uri, "mimeType": "application/json", "text": words}]}
    if any(known["uri"] == uri for known in RESOURCES):
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}]}
    return None


def prompt(params):
    said = lambda content: {"role": "user", "content": content}
    arguments = params.get("arguments", {})
    messages = {
        "test_simple_prompt": [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": [text(f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'")],
        "test_prompt_with_embedded_resource": [
            resource(arguments.get("resourceUri", ""), "Embedded resource content for testing."), text("Please process it.")],
        "test_prompt_with_image": [image(), text("Please analyze the image above.")],
    }
    return {"messages": [said(content) for content in messages[params["name"]]]}


def listed_tool(name):
    properties = TOOLS[name][0]
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": f"The tool {name} of the suite", "inputSchema": schema}


def listed_prompt(name):
    arguments = [{"name": argument, "description": argument, "required": True} for argument in PROMPTS[name]]
    return {"name": name, "description": f"The prompt {name} of the suite", "arguments": arguments}


def answer(method, params):
    capabilities = {
        "tools": {}, "prompts": {}, "resources": {"subscribe": True}, "completions": {}, "logging": {},
    }
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {
        "initialize": lambda: {
            "protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "suite", "version": "1"}},
        "ping": dict,
        "tools/list": lambda: {"tools": [listed_tool(name) for name in TOOLS]},
        "tools/call": lambda: call(params),
        "resources/list": lambda: {"resources": RESOURCES},
        "resources/templates/list": lambda: {"resourceTemplates": [template]},
        "resources/read": lambda: read(params["uri"]),
        "resources/subscribe": dict,
        "resources/unsubscribe": dict,
        "prompts/list": lambda: {"prompts": [listed_prompt(name) for name in PROMPTS]},
        "prompts/get": lambda: prompt(params),
        "completion/complete": lambda: {"completion": {"values": ["paris", "park"], "total": 2, "hasMore": False}},
        "logging/setLevel": dict,
    }.get(method, lambda: None)()


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        code = -32002 if request["method"] == "resources/read" else -32601
        send({"id": request["id"], "error": {"code": code, "message": "not found"}})
    else:
        send({"id": request["id"], "result": result})
