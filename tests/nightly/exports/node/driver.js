// Runs the modules that `migrator export --as electrodb` wrote: asks patterns, makes keys, and makes items without
// writing them. Reads a list of jobs from a file and writes what it found into another.
const fs = require("node:fs");
const path = require("node:path");
const { DynamoDBClient } = require("@aws-sdk/client-dynamodb");

const credentials = { accessKeyId: "test", secretAccessKey: "test" };

async function put(opened, type, properties) {
  const { __edb_e__, __edb_v__, ...item } = opened[type].put(properties).params().Item;
  return item;
}

async function at(what, promise) {
  try {
    return await promise;
  } catch (error) {
    throw new Error(what, { cause: error });
  }
}

async function main(from, to) {
  const { endpoint, region, jobs } = JSON.parse(fs.readFileSync(from, "utf8"));
  const client = new DynamoDBClient({ endpoint, region, credentials });
  const results = [];
  for (const { name, table, questions, rows } of jobs) {
    const module = require(path.resolve(name));
    const opened = module.entities(client, table);
    const answers = [];
    for (const { pattern, params } of questions) {
      const answer = module[pattern](opened, params).catch((error) => {
        if (error instanceof module.RefusedError) return "refused";
        throw error;
      });
      answers.push((await at(`${name} ${pattern}`, answer)) ?? null);
    }
    const items = [];
    for (const { type, keys, values, attributes } of rows) {
      const made = module[keys](values);
      const given = Object.entries(made).filter(([key]) => !(key in attributes));
      const item = put(opened, type, { ...attributes, ...Object.fromEntries(given) });
      items.push({ keys: made, item: await at(`${name} ${type}`, item) });
    }
    results.push({ answers, items });
  }
  const sorted = (_, value) => (value instanceof Set ? [...value].sort() : value);
  fs.writeFileSync(to, JSON.stringify(results, sorted));
}

main(process.argv[2], process.argv[3]).catch((error) => {
  console.error(error);
  process.exit(1);
});
