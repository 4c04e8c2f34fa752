/**
 * The rate of a file through a stream, next to sixteen messages under way by hand, to sockets of RDMA, to node:net and to a C program, over loopback:
 * interleaved, so that each round compares what ran in the same seconds. Usage: node bench/streams/run.mjs [rounds] [MiB]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { pinned, pinning } from '../pinning.mjs';
import { hasRstream, rateOfRstream } from './rstream.mjs';

const MEBIBYTE = Buffer.alloc(2 ** 20, 'node-roce ');

const [rounds = 5, size = 256] = process.argv.slice(2).map(Number);
if (![rounds, size].every((number) => Number.isSafeInteger(number) && number > 0)) {
  console.error('usage: node bench/streams/run.mjs [rounds] [MiB]');
  process.exit(2);
}
/** `rstream` is a C program, on devices of `roce run`, and `rstream-tcp` the same one over TCP. */
const KINDS = [
  ...['sixteen', 'stream', 'web', 'sixteen-memory', 'rsocket', 'net'],
  ...(hasRstream ? ['rstream', 'rstream-tcp'] : []),
];
if (!hasRstream) console.error('the C program is left out: rstream is not installed (rdmacm-utils)');
const side = fileURLToPath(new URL('side.mjs', import.meta.url));

const folder = mkdtempSync(join(tmpdir(), 'roce-streams-'));
const file = join(folder, 'data');
const descriptor = openSync(file, 'w');
for (let i = 0; i < size; i++) writeSync(descriptor, MEBIBYTE);
closeSync(descriptor);

function start(number, ...args) {
  const [command, list] = pinned(number, process.execPath, [side, ...args]);
  return spawn(command, list, { stdio: ['ignore', 'pipe', 'inherit'] });
}

/** MB/s as the receiver sees it, and MB for each second of processor on both sides: that hardly depends on what else runs. */
async function rateOf(kind) {
  if (kind.startsWith('rstream')) return rateOfRstream(kind.endsWith('tcp'), size);
  const server = start(1, 'server', kind);
  const lines = createInterface(server.stdout)[Symbol.asyncIterator]();
  const { value: port } = await lines.next();
  const client = start(0, 'client', kind, port, file);
  const own = createInterface(client.stdout)[Symbol.asyncIterator]();
  const results = await Promise.all([lines.next(), own.next(), once(server, 'exit')]);
  const [{ bytes, rate, cpu }, clients] = results.slice(0, 2).map(({ value }) => JSON.parse(value));
  if (bytes !== size * MEBIBYTE.length) throw new Error(`${kind}: ${bytes} bytes arrived`);
  return { rate: rate / 1e6, perCpu: bytes / 1e6 / (cpu + clients.cpu) };
}

const print = (name, row) =>
  console.log([name, ...row.slice(0, -1).map((value) => value.toFixed(0)), row.at(-1).toFixed(2)].join('\t'));
const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

try {
  console.log(`${size} MiB in chunks of 64 KiB, ${pinning}`);
  console.log('MB/s, then MB for each second of processor; ratio of the stream to sixteen by hand');
  console.log(['', ...KINDS, 'ratio'].join('\t'));
  const all = { rate: [], perCpu: [] };
  for (let round = 1; round <= rounds; round++) {
    const results = [];
    for (const kind of KINDS) results.push(await rateOf(kind));
    for (const unit of ['rate', 'perCpu']) {
      const row = results.map((result) => result[unit]);
      row.push(row[1] / row[0]);
      all[unit].push(row);
      print(`${round} ${unit}`, row);
    }
  }
  for (const unit of ['rate', 'perCpu'])
    print(
      `median ${unit}`,
      all[unit][0].map((_, i) => median(all[unit].map((row) => row[i]))),
    );
} finally {
  rmSync(folder, { recursive: true });
}
