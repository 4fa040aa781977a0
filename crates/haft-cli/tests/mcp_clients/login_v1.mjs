// The official TypeScript SDK, with a handshake, logs in at the authorization server that the
// gateway names, and calls a tool. Prints a report as JSON.
const sdk = (path) => import(`${process.env.MCP_SDK}/sdk/dist/esm/${path}.js`);
const { Client } = await sdk("client/index");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp");
const { UnauthorizedError } = await sdk("client/auth");

const kept = {};
let authorization = null;
const authProvider = {
  redirectUrl: "http://127.0.0.1/callback",
  clientMetadata: {
    client_name: "test",
    redirect_uris: ["http://127.0.0.1/callback"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => { kept.client = client; },
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (url) => { authorization = url; },
};
const url = new URL(process.argv[2]);
const transport = () => new StreamableHTTPClientTransport(url, { authProvider });
const client = () => new Client({ name: "test", version: "1" });
const first = transport();
let refused = false;
try {
  await client().connect(first);
} catch (error) {
  refused = error instanceof UnauthorizedError;
}
// Acts as the user: opens the page, agrees, and follows the redirect with the code.
const page = await fetch(authorization, { redirect: "manual" });
await first.finishAuth(new URL(page.headers.get("location")).searchParams.get("code"));
const connected = client();
await connected.connect(transport());
const called = await connected.callTool({ name: "up__echo", arguments: { text: "hi" } });
const listed = await connected.listTools();
console.log(JSON.stringify({
  refused,
  scope: authorization.searchParams.get("scope"),
  resource: authorization.searchParams.get("resource"),
  echo: called.content[0].text,
  tools: listed.tools.map((tool) => tool.name),
}));
await connected.close();
