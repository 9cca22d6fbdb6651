// Runs the steps that the test names, with a client from npm, and prints as JSON what came of each.
//   node tour.mjs CLIENT URL KEY STEP...

const [client, url, key, ...steps] = process.argv.slice(2);
const module = await import(`./with_${client}.mjs`);
const found = {};
for (const step of steps) found[step] = await module[step](url, key);
console.log(JSON.stringify(found));
process.exit(0);
