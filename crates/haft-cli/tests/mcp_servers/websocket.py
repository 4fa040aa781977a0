"""A small MCP server with a handshake, on a real WebSocket library. Prints its port."""
import json
from websockets.sync.server import serve


def answer(request):
    method = request["method"]
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "ws", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "over a socket: " + request["params"]["arguments"]["text"]}]}


def talk(socket):
    for text in socket:
        request = json.loads(text)
        if "id" not in request:
            continue
        result = answer(request)
        outcome = {"result": result} if result else {"error": {"code": -32601, "message": "unknown method"}}
        socket.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}))


with serve(talk, "127.0.0.1", 0, subprotocols=["mcp"]) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
