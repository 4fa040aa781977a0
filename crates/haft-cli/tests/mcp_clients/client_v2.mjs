// The official TypeScript client, with and without a handshake, as a client of `haft mcp serve`,
// over its standard streams or a URL. Prints a report as JSON.
const sdk = (path) => import(`${process.env.MCP_SDK}/client/dist/${path}.mjs`);
const { Client, StreamableHTTPClientTransport } = await sdk("index");
const { StdioClientTransport } = await sdk("stdio");

const [binary, mode] = process.argv.slice(2);
const options = { capabilities: { elicitation: { form: {} } } };
if (mode !== "legacy") options.versionNegotiation = { mode: mode === "auto" ? mode : { pin: mode } };
const client = new Client({ name: "test", version: "1" }, options);
let question = null;
client.setRequestHandler("elicitation/create", async (request) => {
  question = request.params.message;
  return { action: "accept", content: { decision: "allow once" } };
});
const transport = binary.startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(binary))
  : new StdioClientTransport({ command: binary, args: ["mcp", "serve"], env: process.env });
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
  version: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion().name,
  tools: listed.tools.map((tool) => tool.name),
  echo: (await call("up__echo", { text: "hi" })).content[0].text,
  failed: (await call("up__fail", {})).isError,
  approved: (await call("bash", { command: "echo approved" })).content[0].text,
};
report.question = question;
console.log(JSON.stringify(report));
await client.close();
