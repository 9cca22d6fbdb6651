// MCP's own TypeScript SDK: with a key; and by OAuth first, then with the key.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

async function agents(url, options) {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(url.replace(/\/v1$/, "/mcp")), options));
  const found = await client.callTool({ name: "list_agents", arguments: {} });
  await client.close();
  return found.structuredContent.result.map((each) => each.name);
}

export const key = (url, secret) =>
  agents(url, { requestInit: { headers: { Authorization: `Bearer ${secret}` } } });

export async function oauth_first(url, secret) {
  const authProvider = {
    redirectUrl: "http://localhost:1/callback",
    clientMetadata: { redirect_uris: ["http://localhost:1/callback"] },
    clientInformation: () => undefined,
    saveClientInformation: () => {},
    tokens: () => undefined,
    saveTokens: () => {},
    redirectToAuthorization: () => {
      throw new Error("There is nowhere to go.");
    },
    saveCodeVerifier: () => {},
    codeVerifier: () => "",
  };
  try {
    return await agents(url, { authProvider });
  } catch (error) {
    return [error.message, ...(await key(url, secret))];
  }
}
