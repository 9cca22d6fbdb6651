// OpenAI's own client for Node.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { ASK, Person } from "./weather.mjs";

const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const tools_ = [{ type: "function", function: { name: "get_weather", parameters } }];
const user = (content) => ({ role: "user", content });
const made = (baseURL, apiKey) => new OpenAI({ baseURL, apiKey }).chat.completions;

export async function text(url, key) {
  const answer = await made(url, key).create({ model: "sam", messages: [user("one")] });
  return answer.choices[0].message.content;
}

export async function stream(url, key) {
  const chunks = await made(url, key).create({ model: "sam", messages: [user("two")], stream: true });
  const found = [];
  for await (const chunk of chunks) found.push(chunk.choices[0]?.delta.content ?? "");
  return found;
}

export async function tools(url, key) {
  const messages = [user(ASK)];
  const first = await made(url, key).create({ model: "sam", messages, tools: tools_ });
  const message = first.choices[0].message;
  messages.push(message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" });
  const last = await made(url, key).create({ model: "sam", messages, tools: tools_ });
  return last.choices[0].message.content;
}

export async function structured(url, key) {
  const response_format = zodResponseFormat(Person, "person");
  const answer = await made(url, key).parse({
    model: "sam",
    messages: [user("Who am I?")],
    response_format,
  });
  return answer.choices[0].message.parsed;
}

export async function stop(url, key) {
  const chunks = await made(url, key).create({
    model: "sam",
    messages: [user("Write for ever.")],
    stream: true,
  });
  for await (const _ of chunks) break;
  chunks.controller.abort();
  return "stopped";
}
