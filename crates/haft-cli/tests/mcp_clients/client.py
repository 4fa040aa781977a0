"""The official Python SDK as a client of `haft mcp serve`, over its standard streams or a URL. Prints a report as JSON."""
import asyncio, json, os, sys
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import ElicitResult

binary, mode = sys.argv[1:]
question = None


async def elicit(context, params):
    global question
    question = params.message
    return ElicitResult(action="accept", content={"decision": "allow once"})


def words(result):
    return result.content[0].text


async def main():
    if binary.startswith("http"):
        server = binary
    else:
        server = stdio_client(StdioServerParameters(command=binary, args=["mcp", "serve"], env=dict(os.environ)))
    async with Client(server, mode=mode, elicitation_callback=elicit) as client:
        listed = await client.list_tools()
        echo = await client.call_tool("up__echo", {"text": "hi"})
        failed = await client.call_tool("up__fail", {})
        approved = await client.call_tool("bash", {"command": "echo approved"})
        resources = await client.list_resources()
        templates = await client.list_resource_templates()
        prompts = await client.list_prompts()
        rows = await client.call_tool("rows__rows", {})
        read = await client.read_resource("haft:notes/note://1")
        prompt = await client.get_prompt("notes__greet", {"who": "Ada"})
        report = {
            "resources": [str(resource.uri) for resource in resources.resources],
            "templates": [template.uri_template for template in templates.resource_templates],
            "prompts": [prompt.name for prompt in prompts.prompts],
            "rows": rows.structured_content,
            "read": read.contents[0].text,
            "prompt": prompt.messages[0].content.text,
            "version": client.protocol_version,
            "server": client.server_info.name if client.server_info else "haft",
            "tools": [tool.name for tool in listed.tools],
            "echo": words(echo),
            "failed": failed.is_error,
            "approved": words(approved),
            "question": question,
        }
        print(json.dumps(report))


asyncio.run(main())
