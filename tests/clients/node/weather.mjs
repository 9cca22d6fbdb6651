// What all clients ask.

import { z } from "zod";

export const ASK = "What is the weather in Oslo?";
export const Weather = z.object({ city: z.string() });
export const Person = z.object({ name: z.string(), age: z.number().int() });
