// The official TypeScript SDK as a client of `haft mcp serve` that calls a tool with and without a task.
// Prints a report as JSON.
const sdk = (path) => import(`${process.env.MCP_SDK}/sdk/dist/esm/${path}.js`);
const { Client } = await sdk("client/index");
const { StdioClientTransport } = await sdk("client/stdio");
const { CallToolResultSchema, ElicitRequestSchema } = await sdk("types");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
let question = null;
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  question = request.params.message;
  const choices = request.params.requestedSchema.properties.interpretation;
  const first = choices.oneOf?.[0]?.const ?? choices.enum?.[0];
  return { action: "accept", content: { interpretation: first } };
});
await client.connect(new StdioClientTransport({ command: process.argv[2], args: ["mcp", "serve"], env: process.env }));
const name = "real__simulate-research-query";
const listed = await client.listTools();
const plain = await client.callTool({ name, arguments: { topic: "plain" } });
const statuses = [];
let streamed = null;
const call = { name, arguments: { topic: "python", ambiguous: true } };
for await (const message of client.experimental.tasks.callToolStream(call, CallToolResultSchema)) {
  if (message.type === "taskStatus") statuses.push(message.task.status);
  if (message.type === "result") streamed = message.result.content[0].text;
  if (message.type === "error") streamed = String(message.error);
}
const support = listed.tools.find((tool) => tool.name === name).execution.taskSupport;
console.log(JSON.stringify({ support, plain: plain.content[0].text, statuses, streamed, question }));
await client.close();
