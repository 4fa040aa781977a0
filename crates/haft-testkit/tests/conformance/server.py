"""An upstream MCP server with the tools, resources and prompts that the official conformance suite asks for.

It speaks both protocol eras over stdio. A tool is a generator: it yields questions and gets the answers. In the era
with a handshake the questions are requests to the client. In the era without sessions they are `input_required`: the signed
state holds the answers so far, and the tool runs again from its beginning.
"""

import base64
import hashlib
import hmac
import json
import queue
import sys
import threading
import time

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
KEY = b"only for tests"
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="

writing = threading.Lock()
changes = {"tools": 0, "prompts": 0}
waiting = {}


class Refused(Exception):
    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data else {})


class Call:
    """One request, with methods that send notifications to its client."""

    def __init__(self, params, capabilities):
        self.meta = params.get("_meta", {})
        self.capabilities = capabilities

    def progress(self, value):
        if "progressToken" in self.meta:
            notify("notifications/progress", {"progressToken": self.meta["progressToken"], "progress": value, "total": 100})

    def log(self, text):
        if VERSION not in self.meta:
            notify("notifications/message", {"level": "info", "logger": "conformance", "data": text})

    def require(self, capability):
        if capability not in self.capabilities:
            data = {"requiredCapabilities": {capability: {}}}
            raise Refused(-32021, f"the client must declare {capability}", data)


def send(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def notify(method, params):
    send({"method": method, "params": params})


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def image():
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def form(message, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return "elicitation/create", {"mode": "form", "message": message, "requestedSchema": schema}


def sampling(prompt, tokens=100):
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return "sampling/createMessage", {"messages": [message], "maxTokens": tokens}


STRING = {"type": "string"}
ROOTS = ("roots/list", {})

TOOLS = {}
PROMPTS = {}


def tool(task=None, **properties):
    def register(function):
        schema = {"type": "object", "properties": properties}
        if properties and not task:
            schema["required"] = list(properties)
        TOOLS[function.__name__] = (function, schema, task)
        return function

    return register


@tool()
def test_simple_text(call):
    return text("This is a simple text response for testing.")
    yield


@tool(region={"type": "string", "x-mcp-header": "Region"})
def test_argument_header(call, region):
    return text(region)
    yield


@tool()
def test_image_content(call):
    return {"content": [image()]}
    yield


@tool()
def test_audio_content(call):
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}
    yield


def resource(uri, media, value):
    return {"type": "resource", "resource": {"uri": uri, "mimeType": media, "text": value}}


@tool()
def test_embedded_resource(call):
    return {"content": [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]}
    yield


@tool()
def test_multiple_content_types(call):
    first = {"type": "text", "text": "Multiple content types test:"}
    last = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return {"content": [first, image(), last]}
    yield


@tool()
def test_tool_with_logging(call):
    for step in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        call.log(step)
        time.sleep(0.05)
    return text("done")
    yield


@tool()
def test_logging_tool(call):
    call.log("Tool execution started")
    return text("done")
    yield


@tool()
def test_tool_with_progress(call):
    for step in [0, 50, 100]:
        call.progress(step)
        time.sleep(0.05)
    return text("done")
    yield


@tool()
def test_error_handling(call):
    return text("This tool intentionally returns an error for testing") | {"isError": True}
    yield


@tool()
def test_trigger_tool_change(call):
    changes["tools"] += 1
    notify("notifications/tools/list_changed", {})
    return text("done")
    yield


@tool()
def test_trigger_prompt_change(call):
    changes["prompts"] += 1
    notify("notifications/prompts/list_changed", {})
    return text("done")
    yield


@tool()
def test_missing_capability(call):
    call.require("sampling")
    return text("done")
    yield


@tool(prompt=STRING)
def test_sampling(call, prompt):
    answers = yield {"sample": sampling(prompt)}
    return text("LLM response: " + answers["sample"]["content"]["text"])


@tool(message=STRING)
def test_elicitation(call, message):
    answers = yield {"answer": form(message, username=STRING, email=STRING)}
    return text("User response: " + json.dumps(answers["answer"]))


@tool()
def test_streaming_elicitation(call):
    answers = yield {"answer": form("Who?", name=STRING)}
    return text(json.dumps(answers["answer"]))


def elicited(answer):
    return text(f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}")


@tool()
def test_elicitation_sep1034_defaults(call):
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    answers = yield {"answer": form("Check the defaults", **properties)}
    return elicited(answers["answer"])


@tool()
def test_elicitation_sep1330_enums(call):
    options = ["option1", "option2", "option3"]
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(["First", "Second", "Third"], 1)]
    names = ["Option One", "Option Two", "Option Three"]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    answers = yield {"answer": form("Choose", **properties)}
    return elicited(answers["answer"])


@tool()
def test_input_required_result_elicitation(call):
    answers = yield {"user_name": form("What is your name?", name=STRING)}
    return text(f"Hello, {answers['user_name']['content']['name']}!")


@tool()
def test_input_required_result_sampling(call):
    answers = yield {"capital_question": sampling("What is the capital of France?")}
    return text(json.dumps(answers["capital_question"]))


@tool()
def test_input_required_result_list_roots(call):
    answers = yield {"client_roots": ROOTS}
    return text(json.dumps(answers["client_roots"]))


@tool()
def test_input_required_result_request_state(call):
    yield {"confirm": form("Please confirm", ok={"type": "boolean"})}
    return text("state-ok")


@tool()
def test_input_required_result_tampered_state(call):
    yield {"confirm": form("Please confirm", ok={"type": "boolean"})}
    return text("done")


@tool()
def test_input_required_result_multiple_inputs(call):
    questions = {
        "user_name": form("What is your name?", name=STRING),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ROOTS,
    }
    answers = yield questions
    return text(json.dumps(answers))


@tool()
def test_input_required_result_multi_round(call):
    one = yield {"step1": form("Step 1: What is your name?", name=STRING)}
    two = yield {"step2": form("Step 2: What is your favorite color?", color=STRING)}
    return text(json.dumps([one, two]))


@tool()
def test_input_required_result_capabilities(call):
    """Sends only the kinds of requests that the client has declared as capabilities."""
    wanted = {
        "elicitation": form("What is your name?", name=STRING),
        "sampling": sampling("Generate a greeting"),
        "roots": ROOTS,
    }
    questions = {name: question for name, question in wanted.items() if name in call.capabilities}
    if not questions:
        return text("nothing to ask")
    answers = yield questions
    return text(json.dumps(answers))


@tool(name=STRING)
def greet(call, name):
    return text(f"Hello, {name}!")
    yield


@tool(task="optional", seconds={"type": "number"}, label=STRING)
def slow_compute(call, seconds=0, label=""):
    time.sleep(seconds)
    return text(f"done {label}")
    yield


@tool(task="required")
def failing_job(call):
    time.sleep(1)
    return text("it failed") | {"isError": True}
    yield


@tool(task="optional")
def protocol_error_job(call):
    raise Refused(-32021, "a failure of the protocol")
    yield


@tool(task="optional", filename=STRING)
def confirm_delete(call, filename=""):
    answers = yield {"confirm": form(f"Delete {filename}?", confirm={"type": "boolean"})}
    return text(json.dumps(answers))


@tool(task="optional")
def multi_input(call):
    answers = yield {"one": form("First?", value=STRING), "two": form("Second?", value=STRING)}
    return text(json.dumps(answers))


def prompt(**arguments):
    def register(function):
        PROMPTS[function.__name__] = (function, arguments)
        return function

    return register


def messages(*contents):
    return {"messages": [{"role": "user", "content": content} for content in contents]}


def line(value):
    return {"type": "text", "text": value}


@prompt()
def test_simple_prompt(call):
    return messages(line("This is a simple prompt for testing."))
    yield


@prompt(arg1="First test argument", arg2="Second test argument")
def test_prompt_with_arguments(call, arg1, arg2):
    return messages(line(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))
    yield


@prompt(resourceUri="URI of the resource to embed")
def test_prompt_with_embedded_resource(call, resourceUri):
    embedded = resource(resourceUri, "text/plain", "Embedded resource content for testing.")
    return messages(embedded, line("Please process the embedded resource above."))
    yield


@prompt()
def test_prompt_with_image(call):
    return messages(image(), line("Please analyze the image above."))
    yield


@prompt()
def test_input_required_result_prompt(call):
    answers = yield {"user_context": form("What context should the prompt use?", context=STRING)}
    return messages(line(json.dumps(answers["user_context"])))


def read(uri):
    if uri == "test://static-text":
        return {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}
    if uri == "test://static-binary":
        return {"uri": uri, "mimeType": "image/png", "blob": PNG}
    if uri == "test://watched-resource":
        return {"uri": uri, "mimeType": "text/plain", "text": "watched"}
    parts = uri.split("/")
    if uri.startswith("test://template/") and uri.endswith("/data") and len(parts) == 5:
        value = json.dumps({"id": parts[3], "templateTest": True, "data": f"Data for ID: {parts[3]}"})
        return {"uri": uri, "mimeType": "application/json", "text": value}
    raise Refused(-32602, "Resource not found", {"uri": uri})


def sealed(answers):
    body = base64.urlsafe_b64encode(json.dumps(answers).encode()).decode()
    return body + "." + hmac.new(KEY, body.encode(), hashlib.sha256).hexdigest()


def unsealed(state):
    if state is None:
        return []
    body, _, sign = state.partition(".")
    if not hmac.compare_digest(sign, hmac.new(KEY, body.encode(), hashlib.sha256).hexdigest()):
        raise Refused(-32602, "`requestState` was changed")
    return json.loads(base64.urlsafe_b64decode(body))


def stateless_rounds(steps, params):
    """Runs the tool again with the answers so far, and returns its result or its next questions."""
    rounds, fresh = unsealed(params.get("requestState")), params.get("inputResponses", {})
    try:
        questions = next(steps)
        for answers in rounds:
            questions = steps.send(answers)
        while all(key in fresh for key in questions):
            answers = {key: fresh[key] for key in questions}
            rounds, fresh = rounds + [answers], {}
            questions = steps.send(answers)
    except StopIteration as ended:
        return ended.value | {"resultType": "complete"}
    requests = {key: {"method": method, "params": asked} for key, (method, asked) in questions.items()}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": sealed(rounds)}


def asked_rounds(steps):
    """Sends each question as a separate request to the client, and returns the tool's result."""
    try:
        questions = next(steps)
        while True:
            questions = steps.send({key: ask(method, params) for key, (method, params) in questions.items()})
    except StopIteration as ended:
        return ended.value


def ask(method, params):
    answered = queue.Queue()
    number = f"q{id(answered)}"
    waiting[number] = answered
    send({"id": number, "method": method, "params": params})
    reply = answered.get(timeout=60)
    if "error" in reply:
        raise Refused(-32603, reply["error"]["message"])
    return reply["result"]


def run(function, params, call):
    steps = function(call, **params.get("arguments", {}))
    return stateless_rounds(steps, params) if VERSION in call.meta else asked_rounds(steps)


OFFERS = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
}
INFO = {"name": "conformance", "version": "1"}
RESOURCES = [
    {"uri": f"test://{name}", "name": name, "description": f"The resource {name}", "mimeType": media}
    for name, media in [("static-text", "text/plain"), ("static-binary", "image/png"), ("watched-resource", "text/plain")]
]
TEMPLATE = {
    "uriTemplate": "test://template/{id}/data",
    "name": "template",
    "description": "A template",
    "mimeType": "application/json",
}
declared = {}


def tools_list():
    def listed(name, entry):
        execution = {"execution": {"taskSupport": entry[2]}} if entry[2] else {}
        return {"name": name, "description": f"The tool {name}", "inputSchema": entry[1]} | execution

    more = [("test_added_tool", TOOLS["test_simple_text"])] if changes["tools"] % 2 else []
    return {"tools": [listed(name, entry) for name, entry in [*TOOLS.items(), *more]]}


def prompts_list():
    def listed(name, entry):
        arguments = [{"name": key, "description": about, "required": True} for key, about in entry[1].items()]
        return {"name": name, "description": f"The prompt {name}", "arguments": arguments}

    return {"prompts": [listed(name, entry) for name, entry in PROMPTS.items()]}


def named(table, params):
    if params.get("name") not in table:
        raise Refused(-32602, f"unknown name: {params.get('name')}")
    return table[params["name"]][0]


def answer(method, params):
    meta = params.get("_meta", {})
    call = Call(params, meta.get(CAPABILITIES, declared))
    is_modern = VERSION in meta
    cached = {"ttlMs": 1000, "cacheScope": "private"} if is_modern else {}
    whole = {"resultType": "complete"} if is_modern else {}
    match method:
        case "initialize":
            declared.update(params["capabilities"])
            return {"protocolVersion": params["protocolVersion"], "capabilities": OFFERS | {"logging": {}}, "serverInfo": INFO}
        case "server/discover":
            named_server = {"io.modelcontextprotocol/serverInfo": INFO}
            return {"supportedVersions": ["2026-07-28"], "capabilities": OFFERS, "_meta": named_server} | whole | cached
        case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" if not is_modern:
            return {}
        case "tools/list":
            return tools_list() | whole | cached
        case "resources/list":
            return {"resources": RESOURCES} | whole | cached
        case "resources/templates/list":
            return {"resourceTemplates": [TEMPLATE]} | whole | cached
        case "prompts/list":
            return prompts_list() | whole | cached
        case "resources/read":
            return {"contents": [read(params["uri"])]} | whole | cached
        case "completion/complete":
            return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}} | whole
        case "tools/call":
            return run(named(TOOLS, params), params, call)
        case "prompts/get":
            return run(named(PROMPTS, params), params, call)
    raise Refused(-32601, f"unknown method: {method}")


def handle(number, method, params):
    try:
        send({"id": number, "result": answer(method, params)})
    except Refused as refused:
        send({"id": number, "error": refused.error})
    except (KeyError, TypeError, queue.Empty) as error:
        send({"id": number, "error": {"code": -32602, "message": f"{type(error).__name__}: {error}"}})


def main():
    # The arguments `legacy` (with a handshake) and `modern` (without sessions) restrict the server to one protocol era.
    era = sys.argv[1] if len(sys.argv) > 1 else "both"
    for received in sys.stdin:
        message = json.loads(received)
        if "method" not in message:
            found = waiting.pop(message.get("id"), None)
            if found:
                found.put(message)
        elif "id" in message:
            method, params = message["method"], message.get("params", {})
            is_modern = VERSION in params.get("_meta", {})
            if (era == "legacy" and is_modern) or (era == "modern" and not is_modern):
                send({"id": message["id"], "error": {"code": -32601, "message": "another era"}})
                continue
            threading.Thread(target=handle, args=(message["id"], method, params), daemon=True).start()


main()
