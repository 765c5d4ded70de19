// Clients of Node: each attempt by name, one line for each client, as attempts.py has them.
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, Output, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

const baseURL = process.env.RELSERVE_BASE_URL;
const apiKey = process.env.RELSERVE_API_KEY;
const question = "Is this text positive? Answer yes or no.\n\nText: I love it.";
const messages = [{ role: "user", content: question }];
const Mood = z.object({ is_positive: z.boolean() });

const openai = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const model = (await openai.models.list()).data[0].id;
const provider = createOpenAICompatible({ name: "relserve", baseURL, apiKey, supportsStructuredOutputs: true });
const chat = new ChatOpenAI({ model, apiKey, maxTokens: 40, configuration: { baseURL }, maxRetries: 0 });

const check = (value, what) => {
  if (!value) throw new Error(`no ${what}`);
};
/** Marks an attempt that needs what the server is known not to have: it must fail. */
const missing = (what, run) => Object.assign(run, { missing: what });

const clients = {
  openai: {
    chat: async () => {
      const reply = await openai.chat.completions.create({ model, messages, max_tokens: 4 });
      check(reply.choices[0].message.content, "text");
    },
    stream: async () => {
      let text = "";
      for await (const chunk of await openai.chat.completions.create({ model, messages, max_tokens: 4, stream: true })) {
        text += chunk.choices[0]?.delta.content ?? "";
      }
      check(text, "text");
    },
    responses: async () => {
      const response = await openai.responses.create({ model, input: question, max_output_tokens: 4 });
      check(response.output_text, "text");
    },
    tools: async () => {
      const parameters = { type: "object", properties: { rainy: { type: "boolean" } }, required: ["rainy"] };
      const weather = { type: "function", function: { name: "weather", parameters } };
      const asked = { model, messages, max_tokens: 60, tools: [weather], tool_choice: "required" };
      const reply = await openai.chat.completions.create(asked);
      check(typeof JSON.parse(reply.choices[0].message.tool_calls[0].function.arguments).rainy === "boolean", "boolean");
      const streamed = await openai.chat.completions.stream(asked).finalMessage();
      check(streamed.tool_calls[0].function.name === "weather", "streamed call");
    },
  },
  ai: {
    generateText: async () => {
      const { text } = await generateText({ model: provider(model), prompt: question, maxOutputTokens: 4, maxRetries: 0 });
      check(text, "text");
    },
    streamText: async () => {
      let text = "";
      for await (const part of streamText({ model: provider(model), prompt: question, maxOutputTokens: 4 }).textStream) {
        text += part;
      }
      check(text, "text");
    },
    "generateText with Output.object": async () => {
      const asked = { model: provider(model), prompt: question, maxOutputTokens: 40, maxRetries: 0 };
      const { output } = await generateText({ ...asked, output: Output.object({ schema: Mood }) });
      check(typeof output.is_positive === "boolean", "boolean");
    },
    "generateText with tools": async () => {
      const weather = tool({ description: "The weather.", inputSchema: z.object({ rainy: z.boolean() }), execute: () => "rain" });
      const asked = { model: provider(model), prompt: question, maxOutputTokens: 60, maxRetries: 0 };
      const { toolResults } = await generateText({ ...asked, tools: { weather }, toolChoice: "required" });
      check(toolResults[0].output === "rain", "result of a tool");
    },
  },
  "@langchain/openai": {
    invoke: async () => check((await chat.invoke(question)).content, "text"),
    batch: async () => check((await chat.batch([question, question])).length === 2, "second answer"),
    "structured output": async () => {
      const found = await chat.withStructuredOutput(Mood, { method: "jsonSchema" }).invoke(question);
      check(typeof found.is_positive === "boolean", "boolean");
    },
    "structured output by function calling": async () => {
      const found = await chat.withStructuredOutput(Mood, { method: "functionCalling" }).invoke(question);
      check(typeof found.is_positive === "boolean", "boolean");
    },
  },
};

const version = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url), "utf8")).version;
const told = (error) => `${error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 300);

for (const [client, attempts] of Object.entries(clients)) {
  const passed = [];
  const failed = [];
  for (const [name, run] of Object.entries(attempts)) {
    try {
      await run();
      if (run.missing) failed.push(`  failed: ${name}: works, though it is listed as a gap (${run.missing})`);
      else passed.push(name);
    } catch (error) {
      if (run.missing) console.log(`  known gap: ${name} needs ${run.missing}: ${told(error)}`);
      else failed.push(`  failed: ${name}: ${told(error)}`);
    }
  }
  console.log(`${failed.length ? "FAILED" : "passed"}: ${client} ${version(client)} (Node): ${passed.join(", ")}`);
  failed.forEach((line) => console.log(line));
  if (failed.length) process.exitCode = 1;
}
