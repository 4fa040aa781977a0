"""An MCP server whose tool runs as a task.

The first argument selects the protocol revision: `core` is 2025-11-25, and `extension` is 2026-07-28. The second argument
names a fault. The server appends the methods that it receives to the file in its third argument.
"""
import json, os, sys, threading, time

form, fault = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else "none")
record = sys.argv[3] if len(sys.argv) > 3 else os.devnull
lock = threading.Lock()
waiting = {}
tasks = {}
FORM = {"message": "Which colour?", "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}}}
INTERVALS = {"poll-zero": 0, "poll-year": 31_536_000_000, "poll-text": "soon"}


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def note(words):
    with lock, open(record, "a") as file:
        file.write(words + "\n")


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def shown(task):
    interval = INTERVALS.get(fault, 100)
    state = {"taskId": task["id"], "status": task["status"], "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    if task.get("message"):
        state["statusMessage"] = task["message"]
    if form == "core":
        return state | {"ttl": task["ttl"], "pollInterval": interval}
    return state | {"ttlMs": 60_000, "pollIntervalMs": interval}


def work(task, params):
    """Runs the tool: reports progress, may send a question, and completes the task."""
    token = params["_meta"]["progressToken"]
    task["message"] = "digging"
    time.sleep(0.3)
    send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1, "total": 2}})
    answer = params["arguments"].get("text")
    if params["arguments"].get("ask"):
        task["status"] = "input_required"
        if form == "core":
            answer = json.dumps(asked(task))
        else:
            task["inputs"] = {"colour": {"method": "elicitation/create", "params": FORM}}
            answer = json.dumps(task["answered"].get(timeout=20))
            task["inputs"] = {}
        task["status"] = "working"
    if fault == "never-ends":
        return
    if fault == "fails":
        task["error"] = {"code": -32603, "message": "the disk is full"}
        task["status"] = "failed"
        return
    if fault == "cancels":
        task.update(status="cancelled", message="the quota is used up")
        return
    if fault == "unknown-status":
        task["status"] = "resting"
        return
    task["result"] = text(f"task: {answer}", isError=fault == "tool-error")
    task["status"] = "completed"


def asked(task):
    """Sends a question on the stream of `tasks/result`, which the client opens when the task needs input."""
    task["result_wanted"].wait(20)
    answered = threading.Event()
    waiting["q"] = (answered, {})
    params = FORM | {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": task["id"]}}}
    send({"id": "q", "method": "elicitation/create", "params": params})
    answered.wait(20)
    return waiting.pop("q")[1].get("result")


def begin(params):
    import queue
    task = {"id": f"task-{len(tasks)}", "status": "working", "answered": queue.Queue(), "result_wanted": threading.Event(), "inputs": {}}
    task["ttl"] = params.get("task", {}).get("ttl")
    tasks[task["id"]] = task
    threading.Thread(target=work, args=(task, params), daemon=True).start()
    if fault == "no-id":
        return {"task": {"taskId": "", "status": "working"}}
    return {"task": shown(task)} if form == "core" else shown(task) | {"resultType": "task"}


def result_of(task):
    task["result_wanted"].set()
    while task["status"] in ("working", "input_required"):
        time.sleep(0.02)
    if fault == "no-result":
        return None
    if "error" in task:
        raise RuntimeError(task["error"])
    return task["result"] | {"_meta": {"io.modelcontextprotocol/related-task": {"taskId": task["id"]}}}


def details(task):
    state = shown(task)
    if fault == "other-id":
        state["taskId"] = "task-of-another"
    if form == "core":
        return state
    if task["inputs"]:
        state["inputRequests"] = task["inputs"]
    for key in ("result", "error"):
        if key in task and fault != "no-result":
            state[key] = task[key]
    return state | {"resultType": "complete"}


def answer(method, params):
    if method == "tools/list":
        execution = {"execution": {"taskSupport": "optional" if fault == "optional" else "required"}}
        schema = {"type": "object", "properties": {"text": {"type": "string"}, "ask": {"type": "boolean"}}}
        listed = [{"name": "dig", "inputSchema": schema} | (execution if form == "core" else {})]
        return {"tools": listed} | ({"resultType": "complete", "ttlMs": 1000, "cacheScope": "private"} if form != "core" else {})
    if method == "tools/call":
        if form == "core" and "task" not in params:
            if fault != "optional":
                raise RuntimeError({"code": -32601, "message": "the tool runs only as a task"})
            return text(f"plain: {params['arguments'].get('text')}")
        note(f"ttl {params.get('task', {}).get('ttl')}")
        return begin(params)
    task = tasks.get(params["taskId"])
    if task is None or (fault == "forgets" and method == "tasks/get"):
        raise RuntimeError({"code": -32602, "message": "no such task"})
    if method == "tasks/get":
        return details(task)
    if method == "tasks/result" and form == "core":
        return result_of(task)
    if method == "tasks/update" and form != "core":
        task["answered"].put(params["inputResponses"])
        return {"resultType": "complete"}
    if method == "tasks/cancel":
        task["status"] = "cancelled"
        return shown(task) if form == "core" else {"resultType": "complete"}
    raise RuntimeError({"code": -32601, "message": "unknown method"})


def handle(request):
    try:
        send({"id": request["id"], "result": answer(request["method"], request["params"])})
    except RuntimeError as refused:
        send({"id": request["id"], "error": refused.args[0]})


for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method is None:
        found = waiting.get(request["id"])
        if found:
            found[1].update(request)
            found[0].set()
    elif "id" not in request:
        note(method)
    elif method == "initialize":
        capabilities = {"tools": {}, "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}}}
        if fault == "undeclared":
            capabilities.pop("tasks")
        send({"id": request["id"], "result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "digger", "version": "1"}}})
    elif method == "server/discover" and form != "core":
        send({"id": request["id"], "result": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}}})
    elif method == "server/discover":
        send({"id": request["id"], "error": {"code": -32601, "message": "unknown method"}})
    else:
        note(method)
        threading.Thread(target=handle, args=(request,), daemon=True).start()
