// The official TypeScript SDK, with a handshake, as a client of `haft mcp serve`,
// over its standard streams or a URL. Prints a report as JSON.
const sdk = (path) => import(`${process.env.MCP_SDK}/sdk/dist/esm/${path}.js`);
const { Client } = await sdk("client/index");
const { StdioClientTransport } = await sdk("client/stdio");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp");
const { ElicitRequestSchema } = await sdk("types");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
let question = null;
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  question = request.params.message;
  return { action: "accept", content: { decision: "allow once" } };
});
const server = process.argv[2];
const transport = server.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(server))
  : new StdioClientTransport({ command: server, args: ["mcp", "serve"], env: process.env });
let version = null;
const setVersion = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (chosen) => { version = chosen; setVersion?.(chosen); };
await client.connect(transport);
const call = async (name, args) => client.callTool({ name, arguments: args });
const listed = await client.listTools();
const resources = await client.listResources();
const templates = await client.listResourceTemplates();
const prompts = await client.listPrompts();
const prompt = await client.getPrompt({ name: "notes__greet", arguments: { who: "Ada" } });
const report = {
  resources: resources.resources.map((resource) => resource.uri),
  templates: templates.resourceTemplates.map((template) => template.uriTemplate),
  prompts: prompts.prompts.map((prompt) => prompt.name),
  rows: (await call("rows__rows", {})).structuredContent,
  read: (await client.readResource({ uri: "haft:notes/note://1" })).contents[0].text,
  prompt: prompt.messages[0].content.text,
  version,
  server: client.getServerVersion().name,
  tools: listed.tools.map((tool) => tool.name),
  echo: (await call("up__echo", { text: "hi" })).content[0].text,
  failed: (await call("up__fail", {})).isError,
  approved: (await call("bash", { command: "echo approved" })).content[0].text,
  question,
};
report.question = question;
console.log(JSON.stringify(report));
await client.close();
