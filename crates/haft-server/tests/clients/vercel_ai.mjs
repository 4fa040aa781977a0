// Uses the server through the AI SDK of Vercel, and prints what it saw as JSON.
import { createRequire } from "node:module";

const require = createRequire(process.env.PACKAGES + "/");
const { generateText, stepCountIs, streamText, tool } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");
const { z } = require("zod");

const openai = createOpenAI({ baseURL: process.env.SERVER + "/v1", apiKey: process.env.KEY });
const model = openai.responses(process.env.MODEL);
const plain = await generateText({ model, prompt: "Hi", maxRetries: 0 });
const get_weather = tool({
  description: "Returns the weather of a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => "sunny in " + city,
});
const called = await generateText({
  model,
  prompt: "What is the weather in Paris?",
  tools: { get_weather },
  stopWhen: stepCountIs(3),
  maxRetries: 0,
});
const stream = streamText({ model, prompt: "Hi", maxRetries: 0 });
let streamed = "";
for await (const delta of stream.textStream) streamed += delta;
console.log(
  JSON.stringify({
    text: plain.text,
    function: called.text,
    steps: called.steps.length,
    streamed,
    tokens: (await stream.usage).totalTokens > 0,
  }),
);
