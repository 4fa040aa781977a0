// Uses one part of the server through the official JavaScript client, and prints what it saw as JSON.
import { createRequire } from "node:module";

const require = createRequire(process.env.PACKAGES + "/");
const { OpenAI, NotFoundError } = require("openai");
const { zodTextFormat } = require("openai/helpers/zod");
const { ResponsesWS } = require("openai/resources/responses/ws");
const { z } = require("zod");

const client = new OpenAI({ baseURL: process.env.SERVER + "/v1", apiKey: process.env.KEY, maxRetries: 0 });
const model = "openai/m";

/** Returns the status of the error that a request gets. */
async function statusOf(request) {
  try {
    await request;
    return "found";
  } catch (error) {
    return error instanceof NotFoundError ? error.status : String(error);
  }
}

async function create() {
  const response = await client.responses.create({ model, input: "Hi" });
  const stream = client.responses.stream({ model, input: "Stream, please." });
  const kinds = [];
  stream.on("event", (event) => kinds.push(event.type));
  const final = await stream.finalResponse();
  const again = await client.responses.retrieve(response.id);
  await client.responses.delete(response.id);
  const gone = await statusOf(client.responses.retrieve(response.id));
  const tool = { type: "function", name: "weather", parameters: { type: "object" }, strict: false };
  const called = await client.responses.create({ model, input: "Use a function.", tools: [tool] });
  return {
    text: response.output_text,
    streamed: final.output_text,
    last: kinds[kinds.length - 1],
    same: again.output_text === response.output_text,
    gone,
    called: called.output[0].type,
  };
}

async function parse() {
  const Place = z.object({ town: z.string(), degrees: z.number() });
  const text = { format: zodTextFormat(Place, "place") };
  const response = await client.responses.parse({ model, input: "Parse this.", text });
  const stream = client.responses.stream({ model, input: "Parse this.", text });
  const streamed = await stream.finalResponse();
  return { parsed: response.output_parsed, streamed: streamed.output_parsed };
}

async function cancel() {
  const started = await client.responses.create({ model, input: "Block", background: true });
  const cancelled = await client.responses.cancel(started.id);
  const again = await client.responses.retrieve(started.id);
  return { started: started.status, cancelled: cancelled.status, again: again.status, same: again.id === started.id };
}

async function conversations() {
  const user = (content) => ({ type: "message", role: "user", content });
  const created = await client.conversations.create({ metadata: { topic: "demo" }, items: [user("I am Ann.")] });
  const response = await client.responses.create({ model, conversation: created.id, input: "Who am I?" });
  const items = [];
  for await (const item of client.conversations.items.list(created.id, { order: "asc", limit: 2 })) items.push(item);
  const added = await client.conversations.items.create(created.id, { items: [user("One more.")] });
  const one = await client.conversations.items.retrieve(items[0].id, { conversation_id: created.id });
  await client.conversations.items.delete(items[0].id, { conversation_id: created.id });
  const updated = await client.conversations.update(created.id, { metadata: { topic: "other" } });
  const left = await client.conversations.items.list(created.id);
  const deleted = await client.conversations.delete(created.id);
  return {
    text: response.output_text,
    items: items.map((item) => [item.role, item.content[0].text]),
    added: added.data.length,
    one: one.content[0].text,
    left: left.data.length,
    metadata: [created.metadata, updated.metadata],
    deleted: deleted.deleted,
    gone: await statusOf(client.conversations.retrieve(created.id)),
  };
}

async function websocket() {
  const socket = new ResponsesWS(client);
  const events = socket.stream();
  const ended = [];
  const errors = [];
  const ask = (fields) => socket.send({ type: "response.create", model, store: false, ...fields });
  for await (const event of events) {
    if (event.type === "open") ask({ input: "One." });
    if (event.type === "error") errors.push(String(event.error));
    if (event.type === "close" || errors.length) break;
    if (event.type !== "message" || event.message.type !== "response.completed") continue;
    ended.push(event.message.response);
    if (ended.length === 2) break;
    ask({ input: "Two.", previous_response_id: ended[0].id });
  }
  socket.close();
  return {
    texts: ended.map((response) => response.output[0].content[0].text),
    linked: ended[1]?.previous_response_id === ended[0]?.id,
    errors,
  };
}

const parts = { create, parse, cancel, conversations, websocket };
console.log(JSON.stringify(await parts[process.argv[2]]()));
