// Where KafkaJS and @platformatic/kafka put keys. Reads keys as hexadecimal lines, writes a JSON object a line.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { compatibilityPartitioner } from "@platformatic/kafka";
import { defaultPartitioner } from "./node_modules/@platformatic/kafka/dist/clients/producer/partitioners.js";

const require = createRequire(import.meta.url);
const keys = readFileSync(0, "utf8").split("\n").slice(0, -1).map(line => Buffer.from(line, "hex"));

// The one partition that a key has, or null if calls differ.
function one(place) {
  const seen = new Set(Array.from({ length: 40 }, place));
  return seen.size > 1 ? null : [...seen][0];
}

function write(client, version, setting, place, none) {
  const placed = Object.fromEntries([8, 12, 65521].map(count => [count, keys.map(key => one(() => place(key, count)))]));
  console.log(JSON.stringify({ client, version, setting, none, placed }));
}

for (const name of ["kafkajs", "kafkajs1"]) {
  const { Partitioners } = require(name);
  const { version } = require(`${name}/package.json`);
  const settings = { "": "DefaultPartitioner", ...(name === "kafkajs" ? { LegacyPartitioner: "LegacyPartitioner" } : { JavaCompatiblePartitioner: "JavaCompatiblePartitioner" }) };
  for (const [setting, partitioner] of Object.entries(settings)) {
    const partition = Partitioners[partitioner]();
    const of = {};
    const place = (key, count) => {
      of[count] ??= Array.from({ length: count }, (_, partitionId) => ({ partitionId, leader: count > 1000 ? -1 : 1 }));
      return partition({ topic: "orders", partitionMetadata: of[count], message: { key } });
    };
    write("KafkaJS", version, setting, place, one(() => place(null, 12)));
  }
}
// Its producer takes what they return `%= partitionsCount`. A message without a key is given no partition by them.
const { version } = JSON.parse(readFileSync("node_modules/@platformatic/kafka/package.json"));
write("@platformatic/kafka", version, "", (key, count) => defaultPartitioner({}, key) % count, null);
write("@platformatic/kafka", version, "compatibilityPartitioner", (key, count) => compatibilityPartitioner({}, key) % count, one(() => compatibilityPartitioner({}, null)));
