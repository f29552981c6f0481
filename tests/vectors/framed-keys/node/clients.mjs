// What KafkaJS's client of the registry writes of the keys that it reads, at the registry that is named.
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const require = createRequire(import.meta.url)
const { SchemaRegistry } = require('@kafkajs/confluent-schema-registry')
const { version } = require('@kafkajs/confluent-schema-registry/package.json')

const registry = new SchemaRegistry({ host: process.argv[2] })
const types = { avro: 'AVRO', 'json-schema': 'JSON' }
let number = 0
for await (const line of createInterface({ input: process.stdin })) {
  const { framing, schema, columns, keys: asked } = JSON.parse(line)
  number += 1
  // Its Avro is of records only, and its Protobuf leaves out which message a key is.
  if (!columns.length || framing === 'protobuf') continue
  const { id } = await registry.register({ type: types[framing], schema }, { subject: `topic${number}-key` })
  // JavaScript has no other whole numbers.
  const keys = asked.filter((row) => row.every((value) => typeof value !== 'number' || Number.isSafeInteger(value)))
  const hex = []
  for (const row of keys) {
    const key = Object.fromEntries(columns.map((name, place) => [name, row[place]]))
    hex.push((await registry.encode(id, key)).toString('hex'))
  }
  console.log(JSON.stringify({ client: '@kafkajs/confluent-schema-registry', version, framing, schema, columns, keys, id, hex }))
}
