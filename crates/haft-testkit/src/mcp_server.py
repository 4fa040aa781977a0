"""An MCP server with the fault that its first argument names. Uses protocol revisions with a handshake, over stdio."""
import json, os, signal, subprocess, sys, threading, time

mode = sys.argv[1] if len(sys.argv) > 1 else "good"
out = sys.stdout.buffer
calls = 0
listens = 0
listings = 0
roots = []


def send(message):
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


def reply(request, result):
    send({"jsonrpc": "2.0", "id": request["id"], "result": result})


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


opened = []


def requires_url(request):
    """Refuses a request until the user has opened a URL, and reports this moment a little later."""
    if opened:
        return False
    error = {"code": -32042, "message": "open the URL first", "data": {"elicitations": [{**URL, "elicitationId": "e-1"}]}}
    send({"jsonrpc": "2.0", "id": request["id"], "error": error})

    def complete():
        time.sleep(1)
        opened.append(True)
        send({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": {"elicitationId": "e-1"}})
    threading.Thread(target=complete).start()
    return True


# The levels that the client has set, the newest last.
log_levels = []


def offered(request, method, params):
    """Answers requests for resources and prompts, with fields that no specification defines."""
    link = {"type": "resource_link", "uri": "note://1", "name": "one", "vendor": 2}
    inside = {"type": "resource", "resource": {"uri": "note://1", "text": "first"}}
    if method == "resources/list":
        if params.get("cursor") == "2":
            return reply(request, {"resources": [{"uri": "note://2", "name": "two"}, 7]})
        return reply(request, {"resources": [{"uri": "note://1", "name": "one", "vendor": [1]}], "nextCursor": "2"})
    if method == "resources/templates/list":
        return reply(request, {"resourceTemplates": [{"uriTemplate": "note://{number}", "name": "notes"}]})
    if method == "resources/read":
        if params["uri"] == "note://none":
            return send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32002, "message": "no such note"}})
        if params["uri"] == "note://leaks":
            token = os.environ["NOTES_TOKEN"]
            return send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "bad " + token, "data": {"sent": [token]}}})
        if params["uri"].startswith("note://huge/"):
            mebibytes = int(params["uri"].split("/")[3])
            return reply(request, {"contents": [{"uri": params["uri"], "text": "x" * (mebibytes << 20)}]})
        if params["uri"] == "note://never":
            return None
        return reply(request, {"contents": [{"uri": params["uri"], "text": "read " + params["uri"], "vendor": 3}]})
    if method == "resources/subscribe":
        reply(request, {})
        for uri in (params["uri"], "note://unwatched"):
            send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
        return send({"jsonrpc": "2.0", "method": "notifications/resources/list_changed"})
    if method == "prompts/list":
        return reply(request, {"prompts": [{"name": "greet", "arguments": [{"name": "who"}], "vendor": 4}]})
    if method == "prompts/get" and params.get("arguments", {}).get("who") == "consent":
        return requires_url(request) or reply(request, {"messages": [said("Greet")]})
    if method == "prompts/get":
        if "arguments" not in params:
            asked = ask("elicitation/create", FORM)
            return reply(request, {"messages": [said(json.dumps(asked))]})
        words = said("Greet " + params["arguments"]["who"])
        if params["arguments"]["who"] == "everyone":
            send({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"})
        return reply(request, {"messages": [words, {"role": "user", "content": inside}], "vendor": 5})
    if method == "completion/complete":
        return reply(request, {"completion": {"values": [json.dumps(params["ref"], sort_keys=True)]}})
    if mode == "loud" and method == "tools/call":
        # Send so many messages that a client which does not read falls far behind, then changes that it must not miss.
        for _ in range(600):
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "x" * 60_000}})
        for _ in range(300):
            send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "note://1"}})
            time.sleep(0.002)
        return reply(request, text("loud"))
    if method == "tools/call" and params["name"] == "fail":
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        return reply(request, {"content": [{"type": "text", "text": "broken"}, image, link], "isError": True, "vendor": 6})
    if params.get("arguments", {}).get("text") == "exit":
        os._exit(3)
    if params.get("arguments", {}).get("text") == "blob":
        font = {"uri": "note://font", "mimeType": "font/ttf", "blob": "AAAA", "vendor": 8}
        return reply(request, {"content": [link, {"type": "resource", "resource": font}], "vendor": 7})
    if params.get("arguments", {}).get("text") == "media":
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png", "annotations": {"audience": ["user"]}, "vendor": 9}
        return reply(request, {"content": [image, {"type": "audio", "data": "BBBB", "mimeType": "audio/wav", "vendor": 10}]})
    if params.get("arguments", {}).get("text") == "long":
        described = {**link, "title": "First", "description": "the first note", "mimeType": "text/plain"}
        return reply(request, {"content": [{"type": "text", "text": "word " * 2000}, described, inside]})
    noted = "mind the step" + params.get("arguments", {}).get("text", "")
    send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "warning", "data": noted}})
    reply(request, {"content": [link, inside], "structuredContent": {"a": 1.0}, "_meta": {"v": 1}})


OFFERS = ["resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
          "prompts/list", "prompts/get", "completion/complete", "tools/call"]
# Each tool of the mode `sloppy` has one of these members, which clients refuse in at least one protocol revision.
SLOPPY = [
    {"description": None}, {"description": 7}, {"title": []}, {"icons": "star"}, {"icons": [{"mimeType": "image/png"}]},
    {"icons": [{"src": "https://example.com/e.png", "theme": "blue"}]}, {"annotations": None}, {"annotations": "x"},
    {"annotations": {"readOnlyHint": "yes"}}, {"annotations": {"title": None}}, {"execution": None},
    {"execution": {"taskSupport": "x"}}, {"_meta": None}, {"_meta": 7}, {"outputSchema": None}, {"outputSchema": True},
    {"outputSchema": {"type": "array"}}, {"outputSchema": {"anyOf": [{"type": "object"}]}}, {"inputSchema": None},
    {"inputSchema": {"type": "object", "properties": {"x": True, "y": False}}}, {"inputSchema": {"properties": []}},
    {"inputSchema": {"type": "object", "required": True}}, {"inputSchema": {"type": "object", "$schema": 7}},
    {"outputSchema": {"type": "object", "properties": {"x": True}}}, {"outputSchema": {"type": "object", "required": None}},
    {"outputSchema": {"type": "object", "properties": {"x": {"type": "strin"}}}},
    {"outputSchema": {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}}},
    {"outputSchema": {"type": "object", "properties": {"x": {"$ref": "https://example.com/x.json"}}}},
    {"outputSchema": {"type": "object", "properties": {"x": {"minimum": "1"}}}},
]
ODD = {"title": None, "description": 7, "mimeType": None, "size": -1, "icons": {}, "_meta": [],
       "annotations": {"audience": "user", "priority": 9, "lastModified": "today"}}
SLOPPY_LISTS = {
    "resources/list": {"resources": [{"uri": "note://3", "name": "three", **ODD}, {"uri": "note://4", "name": None}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "odd://{number}", **ODD}]},
    "prompts/list": {"prompts": [{"name": "odd", "title": 7, "description": None, "arguments": [{"name": "a", "required": "yes"}, {}]},
                                 {"name": "odder", "arguments": {}, "icons": [7]}]},
}
VERBS = ["create", "list", "get", "delete", "update", "archive", "send", "merge", "export", "import"]
NOUNS = ["invoice", "customer", "payment", "order", "contract", "ticket", "report", "article", "campaign", "shipment"]


def catalog(count):
    """Returns the tools of a large server, each with a different name and description."""
    def one(number):
        verb, noun = VERBS[number % 10], NOUNS[number // 10 % 10]
        name = f"{verb}_{noun}" + (f"_{number // 100}" if number >= 100 else "")
        words = {"type": "string", "description": f"The words for the {noun}"}
        schema = {"type": "object", "required": ["text"], "properties": {"text": words, "limit": {"type": "integer"}}}
        return {"name": name, "description": f"Can {verb} one {noun} of the company, and returns it.", "inputSchema": schema}
    return [one(number) for number in range(count)]


def tools():
    names = ["echo", "slow", "fail"]
    if mode == "counts":
        names.append("do.it")
    if mode == "same-names":
        names += [f"a{chr(0x4e00 + number)}" for number in range(9000)]
    if mode == "many-tools":
        names = [f"tool_{number}" for number in range(20000)]
    if (mode == "changes" and calls > 0) or listens > 1:
        names.append("late")
    if mode == "restless":
        names.append(f"tool_{listings}")
    listed = [{"name": name, "inputSchema": {"type": "object"}, "vendor": 1} for name in names]
    listed[0]["annotations"] = {"readOnlyHint": True}
    if mode == "headers":
        words = {"type": "string", "x-mcp-header": "Text"}
        listed[0]["inputSchema"]["properties"] = {"text": words}
        listed[2]["inputSchema"] = {"type": "object", "properties": {"text": words}}
    if mode == "decorated":
        icon = {"src": "https://example.com/e.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
        listed[0].update({"title": "Echo", "description": "Returns a text", "icons": [icon], "_meta": {"example.com/rank": {"a": [1, None]}}})
    if mode == "catalog":
        listed = catalog(int(sys.argv[2]))
        if "grows" in sys.argv and calls > 0:
            listed.append({"name": "water_the_garden", "description": "Waters all plants of a garden", "inputSchema": {"type": "object"}})
    if mode == "sloppy":
        listed += [{"name": f"odd_{at:02}", "inputSchema": {"type": "object"}, **odd} for at, odd in enumerate(SLOPPY)]
    if "rows" in sys.argv:
        rows = {"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": {"type": "integer"}}}
        listed.append({"name": "rows", "inputSchema": {"type": "object"}, "outputSchema": rows})
    if mode == "bad-tools":
        listed += [{"name": "broken", "inputSchema": 7}, {"inputSchema": {}}, 17]
    return listed


def ask(method, params):
    """Sends a request to the client, and returns its reply."""
    send({"jsonrpc": "2.0", "id": f"q-{method}", "method": method, "params": params})
    while True:
        message = json.loads(sys.stdin.readline())
        if message.get("id") == f"q-{method}":
            return message.get("result", message.get("error"))


URL = {"mode": "url", "url": "https://example.com/consent", "message": "Open it"}
FORM = {"message": "Which colour?", "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}}}


def said(words):
    return {"role": "user", "content": {"type": "text", "text": words}}


def sample(what):
    """Returns the parameters of a sampling request: valid ones, or the invalid ones that `what` names."""
    wanted = {"messages": [said("What is the capital of France?")], "systemPrompt": "Be brief.", "maxTokens": 50}
    odd = {
        "large": {"messages": [said("x" * (10 << 20))]},
        "nonsense": {"messages": 17},
        "tools": {"tools": [{"name": "bash", "inputSchema": {"type": "object"}}]},
        "greedy": {"maxTokens": 10 ** 12},
    }
    return {**wanted, **odd.get(what, {})}


def flood(count):
    """Sends `count` sampling requests before it reads the first reply."""
    for number in range(count):
        send({"jsonrpc": "2.0", "id": f"f-{number}", "method": "sampling/createMessage", "params": sample("")})
    answers = [json.loads(sys.stdin.readline()) for _ in range(count)]
    return {"written": sum("result" in answer for answer in answers), "refused": sum("error" in answer for answer in answers)}


def call(request):
    global calls, listings
    calls += 1
    params = request["params"]
    name = params["name"]
    if mode == "shows-meta":
        return reply(request, text(json.dumps(params["_meta"])))
    if mode == "reads":
        try:
            return reply(request, text(open(params["arguments"]["path"]).read()))
        except OSError as error:
            return reply(request, text(str(error), isError=True))
    if mode == "talks":
        print("said during a call", file=sys.stderr, flush=True)
    if mode == "blabs":
        secret = os.environ["BLAB_TOKEN"]
        print("noise with", secret, flush=True)
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "using " + secret}})
        return send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "refused: " + secret}})
    if mode == "watches-roots":
        return reply(request, text(json.dumps([client, roots])))
    if mode == "asks-roots":
        return reply(request, text(json.dumps(ask("roots/list", {}))))
    if mode == "asks-person":
        return reply(request, text(json.dumps(ask("elicitation/create", FORM))))
    if mode == "asks-url" and name == "fail":
        return requires_url(request) or reply(request, text("the URL is open"))
    if mode == "asks-url" and name == "echo":
        reply(request, text(json.dumps(ask("elicitation/create", {**URL, "elicitationId": "e-1"}))))
        for number in (1, 2):
            completed = {"elicitationId": f"e-{number}"}
            send({"jsonrpc": "2.0", "method": "notifications/elicitation/complete", "params": completed})
        return
    if mode == "asks-whether":
        whether = {"message": "Delete it all?", "requestedSchema": {"type": "object", "properties": {}}}
        return reply(request, text(json.dumps(ask("elicitation/create", whether))))
    if mode == "answers-twice":
        reply(request, text("the first"))
        return reply(request, text("the second"))
    if mode == "pieces":
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % request["id"])
        out.write(b'{"type":"text","text":"kept"}' + b",0" * 10_000_000 + b"]}}\n")
        return out.flush()
    if mode == "structured":
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"structuredContent":[0' % request["id"])
        out.write(b",0" * 10_000_000 + b"]}}\n")
        return out.flush()
    if mode == "batch":
        out.write(b"[0" + b",0" * 10_000_000 + b"]\n")
    if mode == "long-id":
        send({"jsonrpc": "2.0", "id": "x" * (5 << 20), "method": "ping"})
    if mode == "stderr-flood":
        for _ in range(200):
            os.write(2, b"e" * (200 << 10) + b"\n")
    if mode == "progress-flood":
        token = params["_meta"]["progressToken"]
        for step in range(5000):
            told = {"progressToken": token, "progress": step, "message": "p" * 10_000}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": told})
    if mode == "change-storm":
        for _ in range(20_000):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if mode == "pesters":
        answers = [ask("elicitation/create", FORM) for _ in range(100)]
        return reply(request, text(json.dumps(sum("action" in answer for answer in answers))))
    if mode == "counts-token":
        return reply(request, text(f"token of {len(os.environ['NOTES_TOKEN'])} characters"))
    if mode == "rude-error":
        error = {"code": -32000, "message": "\x1b[2J\x1b]0;owned\x07" + "no" * 1_000_000, "data": [0] * 1_000_000}
        return send({"jsonrpc": "2.0", "id": request["id"], "error": error})
    level = params["_meta"].get("io.modelcontextprotocol/logLevel")
    if mode == "modern" and level:
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": level, "data": "as requested"}})
    if name == "rows":
        return reply(request, text("two rows", structuredContent=[1, 2]))
    if mode == "modern" and params["arguments"].get("many"):
        wanted = {str(number): {"method": "elicitation/create", "params": FORM} for number in range(100_000)}
        return reply(request, {"resultType": "input_required", "inputRequests": wanted})
    if mode == "asks-model" and "flood" in params["arguments"]:
        return reply(request, text(json.dumps(flood(params["arguments"]["flood"]))))
    if mode == "asks-model" and params["arguments"].get("what") == "capabilities":
        return reply(request, text(json.dumps(client)))
    if mode == "asks-model":
        wanted = sample(params["arguments"].get("what"))
        return reply(request, text(json.dumps(ask("sampling/createMessage", wanted))))
    if mode == "modern" and params["arguments"].get("asks") == "url":
        if "inputResponses" in params:
            return reply(request, text(json.dumps(params["inputResponses"])))
        wanted = {"consent": {"method": "elicitation/create", "params": URL}}
        return reply(request, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s"})
    if mode == "modern" and params["arguments"].get("asks") == "roots":
        if "inputResponses" in params:
            return reply(request, text(json.dumps(params["inputResponses"])))
        wanted = {"places": {"method": "roots/list", "params": {}}}
        return reply(request, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s"})
    if mode == "modern" and "what" in params["arguments"]:
        if "inputResponses" in params:
            return reply(request, text(json.dumps(params["inputResponses"])))
        wanted = {"capital": {"method": "sampling/createMessage", "params": sample(params["arguments"]["what"])}}
        return reply(request, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s"})
    if mode == "modern" and params["arguments"].get("asks") == "twice" and params.get("requestState") != "second":
        is_first = "inputResponses" not in params
        wanted = {"question": {"method": "elicitation/create", "params": {**FORM, "message": "First?" if is_first else "Second?"}}}
        return reply(request, {"resultType": "input_required", "inputRequests": wanted, "requestState": "first" if is_first else "second"})
    if mode == "modern" and name == "slow" and "inputResponses" not in params:
        wanted = {"colour": {"method": "elicitation/create", "params": FORM}}
        return reply(request, {"resultType": "input_required", "inputRequests": wanted, "requestState": "s-17"})
    if mode == "modern" and name == "slow":
        return reply(request, text(json.dumps([params["inputResponses"], params["requestState"]])))
    if mode == "modern" and name == "fail":
        return reply(request, {"resultType": "input_required", "inputRequests": {}, "requestState": "again"})
    if mode == "quiet" and params["arguments"].get("text") == "exit":
        os._exit(3)
    if mode == "quiet" and log_levels:
        told = {"level": log_levels[-1], "data": "at " + log_levels[-1]}
        send({"jsonrpc": "2.0", "method": "notifications/message", "params": told})
    if mode == "never-answers":
        return
    if mode == "late" and calls == 1:
        time.sleep(2)
    if mode == "wrong-id":
        return send({"jsonrpc": "2.0", "id": request["id"] + 1000, "result": text("stray")})
    if mode == "exits-mid-call" or (mode == "exits-after-3" and calls > 3):
        print("about to fall over", file=sys.stderr, flush=True)
        os._exit(3)
    if mode == "endless-line":
        chunk = b"x" * (1 << 20)
        for _ in range(1100):
            out.write(chunk)
    if mode == "huge-result":
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"' % request["id"])
        for _ in range(200):
            out.write(b"y" * (1 << 20))
        out.write(b'"}]}}\n')
        return out.flush()
    if mode == "noise":
        out.write(b'starting up\n{"level":"info","id":%d}\n[1,2,3]\n"text"\n\xef\xbb\xbf\n' % request["id"])
    if mode == "deep":
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":' % request["id"])
        out.write(b"[" * 100000 + b"]" * 100000 + b"}}\n")
        return out.flush()
    if mode == "not-utf8":
        out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xff\xfeb"}]}}\n' % request["id"])
        return out.flush()
    if mode == "changes" or "grows" in sys.argv:
        # Announce a changed tool list while this call is still in progress.
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if "grows" in sys.argv and calls == 2:
        # Reply to this call only after the client has received the new tool list.
        while listings < 2:
            message = json.loads(sys.stdin.readline())
            if message.get("method") == "tools/list":
                listings += 1
                reply(message, {"tools": tools()})
    if name == "slow" and mode != "counts":
        for step in range(3):
            time.sleep(0.5)
            token = request["params"]["_meta"]["progressToken"]
            params = {"progressToken": token, "progress": step + 1, "total": 3}
            send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    if name == "fail":
        return reply(request, text("it went wrong", isError=True))
    if mode == "counts":
        return reply(request, text(f"call {calls}"))
    words = {"args": request["params"]["arguments"], "environment": sorted(os.environ), "cwd": os.getcwd()}
    reply(request, text(json.dumps(words) if mode == "tells" else "echo: " + str(request["params"]["arguments"].get("text"))))


if mode == "blabs":
    print("begins with", os.environ["BLAB_TOKEN"], file=sys.stderr, flush=True)
if mode == "exits-at-once":
    print("no licence found", file=sys.stderr)
    sys.exit(1)
if mode in ("ignores-term", "hangs-in-shutdown"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if mode == "obeys-term":
    def obey(*_):
        open(sys.argv[3], "w").write("the server shuts down cleanly")
        os._exit(0)
    signal.signal(signal.SIGTERM, obey)
if mode == "daemon":
    subprocess.Popen(["setsid", "sleep", sys.argv[2]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

if mode == "restless":
    def change():
        while True:
            time.sleep(0.1)
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    threading.Thread(target=change, daemon=True).start()

for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if mode == "modern-offers" and method in ("resources/subscribe", "resources/unsubscribe"):
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "unknown method"}})
        continue
    if mode in ("offers", "loud", "modern-offers") and method in OFFERS:
        offered(request, method, request["params"])
        continue
    if mode == "sloppy" and method in SLOPPY_LISTS:
        reply(request, SLOPPY_LISTS[method])
        continue
    if method == "server/discover":
        if mode in ("dies-on-probe", "refuses-later"):
            sys.exit(1)
        if mode == "silent-on-probe":
            continue
        if mode == "modern-offers":
            offers = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}}
            reply(request, {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": offers})
            continue
        if mode == "modern":
            listed = {"listChanged": len(sys.argv) > 2 and sys.argv[2] == "listens"}
            found = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": listed}}
            reply(request, found)
            continue
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "unknown method"}})
    elif method == "initialize" and mode == "refuses-later" and os.path.exists(sys.argv[2]):
        send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "the licence is used up"}})
    elif method == "initialize" and mode != "never-greets":
        client = request["params"]["capabilities"]
        info = {"name": "misbehaving", "version": "1"}
        capabilities = {"tools": {"listChanged": True}}
        if mode == "prompts":
            capabilities["prompts"] = {}
        if mode == "sloppy":
            capabilities.update({"prompts": {}, "resources": {}})
        if mode == "quiet":
            capabilities["logging"] = {}
        if mode in ("offers", "loud"):
            capabilities.update({"prompts": {}, "resources": {"subscribe": True}, "completions": {}, "logging": {}})
        if mode == "waits-for-others":
            open(os.path.join(sys.argv[2], sys.argv[3]), "w").close()
            while len(os.listdir(sys.argv[2])) < int(sys.argv[4]):
                time.sleep(0.02)
        greeting = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        odd = {
            "prompts": {"instructions": "Be kind."},
            "catalog": {"instructions": "Sells paper. Ask before you send an invoice."} if "instructs" in sys.argv else {},
            "long-words": {"instructions": "Be kind. " * 20_000, "serverInfo": {"name": "n" * 100_000, "version": "\x1b[31m"}},
            "huge-greeting": {"instructions": "x" * (2 << 20)},
            "strange-version": {"protocolVersion": "v" * 100_000},
            "strange-greeting": {"protocolVersion": 17, "capabilities": 7, "serverInfo": []},
        }
        reply(request, {**greeting, **odd.get(mode, {})})
    elif method == "logging/setLevel":
        log_levels.append(request["params"]["level"])
        reply(request, {})
    elif mode == "watches-roots" and method in ("notifications/initialized", "notifications/roots/list_changed"):
        send({"jsonrpc": "2.0", "id": f"roots-{len(roots)}", "method": "roots/list"})
    elif mode == "watches-roots" and str(request.get("id")).startswith("roots-"):
        roots.append(request.get("result", request.get("error")))
    elif method == "subscriptions/listen" and mode == "modern-offers":
        # Report changes of the watched resources, and of one that is not watched.
        wanted = request["params"]["notifications"]["resourceSubscriptions"]
        stream = {"_meta": {"io.modelcontextprotocol/subscriptionId": request["id"]}}
        honored = {"notifications": {"resourceSubscriptions": wanted}, **stream}
        send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": honored})
        for uri in [*wanted, "note://unwatched"]:
            send({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri, **stream}})
    elif method == "subscriptions/listen":
        # End the first stream at once, so that the next changes cannot be sent on any stream.
        listens += 1
        if listens == 1:
            reply(request, {"resultType": "complete"})
    elif method == "prompts/list":
        reply(request, {"prompts": [{"name": "review", "description": "Reviews code"}, 7]})
    elif method == "tools/list":
        if mode == "asks-model-unasked":
            print("it was told:", ask("sampling/createMessage", sample("")), file=sys.stderr, flush=True)
        listings += 1
        if mode == "catalog" and "slow" in sys.argv:
            time.sleep(0.7)
        while mode == "catalog" and "gated" in sys.argv and not os.path.exists("gate"):
            time.sleep(0.02)
        page = {"tools": tools()}
        if mode == "pages-for-ever":
            page["nextCursor"] = str(int(request["params"].get("cursor", "0")) + 1)
        if mode == "small-pages":
            at = int(request["params"].get("cursor", "0"))
            page["tools"] = page["tools"] if at == 0 else [{"name": f"tool_{at}"}]
            page.update({} if at == 2000 else {"nextCursor": str(at + 1)})
        if mode == "same-page-for-ever":
            page["nextCursor"] = "again"
        if mode == "strange-list":
            page = {"tools": {"echo": 1}, "nextCursor": 5}
        if mode == "million-tools":
            listed = b",".join(b'{"name":"t_%d"}' % number for number in range(1_000_000))
            out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%s]}}\n' % (request["id"], listed))
            out.flush()
            continue
        if mode == "million-pages":
            at = int(request["params"].get("cursor", "0"))
            page["tools"] = [{"name": f"t_{at * 1000 + number}"} for number in range(1000)]
            page.update({} if at == 999 else {"nextCursor": str(at + 1)})
        if mode == "list-of-nothing":
            out.write(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[0%s]}}\n' % (request["id"], b",0" * 10_000_000))
            out.flush()
            continue
        reply(request, page)
        if mode == "catalog" and "gated" in sys.argv:
            open("listed", "w").close()
    elif method == "tools/call":
        call(request)
    elif method == "ping" and mode != "never-answers":
        reply(request, {})
    elif method == "notifications/cancelled" and len(sys.argv) > 3:
        open(sys.argv[3], "a").write("cancelled\n")
while mode in ("hangs-in-shutdown", "ignores-term", "obeys-term"):
    time.sleep(1)
