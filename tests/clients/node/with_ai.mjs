// Vercel's AI SDK, with its provider for OpenAI-compatible endpoints.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { ASK, Person, Weather } from "./weather.mjs";

const sam = (baseURL, apiKey) =>
  createOpenAICompatible({ name: "memserver", baseURL, apiKey, supportsStructuredOutputs: true })("sam");

export async function text(url, key) {
  return (await generateText({ model: sam(url, key), prompt: "one" })).text;
}

export async function stream(url, key) {
  const found = [];
  for await (const part of streamText({ model: sam(url, key), prompt: "two" }).textStream) found.push(part);
  return found;
}

export async function tools(url, key) {
  const get_weather = tool({
    description: "The weather in a city.",
    inputSchema: Weather,
    execute: async () => "sunny",
  });
  const answer = await generateText({
    model: sam(url, key),
    prompt: ASK,
    tools: { get_weather },
    stopWhen: stepCountIs(3),
  });
  return answer.text;
}

export async function structured(url, key) {
  const output = Output.object({ schema: Person });
  return (await generateText({ model: sam(url, key), prompt: "Who am I?", output })).output;
}

export async function stop(url, key) {
  const controller = new AbortController();
  const { fullStream } = streamText({
    model: sam(url, key),
    prompt: "Write for ever.",
    abortSignal: controller.signal,
  });
  setTimeout(() => controller.abort(), 2000);
  for await (const _ of fullStream);
  return "stopped";
}
