// The official TypeScript SDK of the handshake era as a client of `haft mcp serve`. Prints a report as JSON.
const sdk = (path) => import(`${process.env.MCP_SDK}/sdk/dist/esm/${path}.js`);
const { Client } = await sdk("client/index");
const { StdioClientTransport } = await sdk("client/stdio");
const { ElicitRequestSchema } = await sdk("types");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
let question = null;
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  question = request.params.message;
  return { action: "accept", content: { decision: "allow once" } };
});
const transport = new StdioClientTransport({ command: process.argv[2], args: ["mcp", "serve"], env: process.env });
let version = null;
transport.setProtocolVersion = (chosen) => { version = chosen; };
await client.connect(transport);
const call = async (name, args) => client.callTool({ name, arguments: args });
const listed = await client.listTools();
const report = {
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
