// The official TypeScript SDK, with a handshake, gets the URL of a login at an upstream server,
// opens it, waits for the end of the login, and repeats its call. Prints a report as JSON.
const sdk = (path) => import(`${process.env.MCP_SDK}/sdk/dist/esm/${path}.js`);
const { Client } = await sdk("client/index");
const { StdioClientTransport } = await sdk("client/stdio");
const { ElicitationCompleteNotificationSchema, UrlElicitationRequiredError } = await sdk("types");

const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: { url: {} } } });
const completed = new Promise((resolve) => {
  client.setNotificationHandler(ElicitationCompleteNotificationSchema, ({ params }) => resolve(params.elicitationId));
});
await client.connect(new StdioClientTransport({ command: process.argv[2], args: ["mcp", "serve"], env: process.env }));
await client.listTools();
let asked = null;
try {
  await client.callTool({ name: "far__haft_login", arguments: {} });
} catch (error) {
  asked = error instanceof UrlElicitationRequiredError ? error.elicitations[0] : null;
}
// Acts as the user: opens the page, agrees, and follows the redirect to the local port.
const page = await fetch(`${asked.url}&account=sdk`);
const id = await completed;
const called = await client.callTool({ name: "far__whoami", arguments: {} });
console.log(JSON.stringify({
  page: page.status,
  completed: id === asked.elicitationId,
  whoami: called.content[0].text,
}));
await client.close();
