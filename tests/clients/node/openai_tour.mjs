// What somebody does with OpenAI's SDK for Node; prints what came back as JSON, for the test to look at.

import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none" });
const found = {};

found.models = [];
for await (const model of client.models.list()) found.models.push(model.id);
found.model = (await client.models.retrieve("sam")).id;

const messages = [{ role: "user", content: "one" }];
const first = await client.chat.completions.create({ model: "sam", messages });
found.completion = first.choices[0].message.content;
found.usage = first.usage;

messages.push(first.choices[0].message, { role: "user", content: "two" });
const chunks = await client.chat.completions.create({
  model: "sam",
  messages,
  stream: true,
  stream_options: { include_usage: true },
});
found.chunks = [];
for await (const chunk of chunks) {
  if (chunk.choices.length) found.chunks.push(chunk.choices[0].delta.content ?? "");
  else found.streamUsage = chunk.usage;
}

const response = await client.responses.create({ model: "sam", input: "three" });
found.response = response.output_text;
const stream = client.responses.stream({
  model: "sam",
  input: "four",
  previous_response_id: response.id,
});
found.events = [];
for await (const event of stream) found.events.push(event.type);
found.streamed = (await stream.finalResponse()).output_text;
found.retrieved = (await client.responses.retrieve(response.id)).output[0].content[0].text;

found.errors = [];
for (const ask of [
  () => client.responses.create({ model: "nobody", input: "Hi" }),
  () => client.chat.completions.create({ model: "sam", messages, n: 2 }),
  () => client.chat.completions.create({ model: "sam", messages: [{ role: "user", content: "fail" }] }),
]) {
  try {
    await ask();
  } catch (error) {
    found.errors.push([error.constructor.name, error.status, error.code, error.param]);
  }
}

console.log(JSON.stringify(found));
