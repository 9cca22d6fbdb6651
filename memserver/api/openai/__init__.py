"""The routes that speak OpenAI's API, for clients that know no other."""
