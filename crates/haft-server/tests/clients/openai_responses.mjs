// Uses the server through the official JavaScript client, and prints what it saw as JSON.
import { createRequire } from "node:module";

const require = createRequire(process.env.PACKAGES + "/");
const { OpenAI, NotFoundError } = require("openai");

const client = new OpenAI({ baseURL: process.env.SERVER + "/v1", apiKey: process.env.KEY, maxRetries: 0 });
const model = "openai/m";

const response = await client.responses.create({ model, input: "Hi" });
const stream = client.responses.stream({ model, input: "Stream, please." });
const kinds = [];
stream.on("event", (event) => kinds.push(event.type));
const final = await stream.finalResponse();
const again = await client.responses.retrieve(response.id);
await client.responses.delete(response.id);
let gone = "found";
try {
  await client.responses.retrieve(response.id);
} catch (error) {
  gone = error instanceof NotFoundError ? error.status : String(error);
}
const tool = { type: "function", name: "weather", parameters: { type: "object" }, strict: false };
const called = await client.responses.create({ model, input: "Use a function.", tools: [tool] });
console.log(
  JSON.stringify({
    text: response.output_text,
    streamed: final.output_text,
    last: kinds[kinds.length - 1],
    same: again.output_text === response.output_text,
    gone,
    called: called.output[0].type,
  }),
);
