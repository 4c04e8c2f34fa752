// node bench/rxe/run.mjs [--guest debian12|debian13] [--rounds N] [--json FILE]
//
// rxe and node-roce, each as client and as server, and perftest by `roce run`, at both ends of one link, in turns. rxe runs in guests under
// User-Mode Linux and node-roce on this machine (um.mjs), or all of it in guests under QEMU (emulated.mjs) with ROCE_GUEST_ACCEL=tcg, and where there is
// no kernel for User-Mode Linux. Bandwidth is of SENDs of 64 KiB by events, with
// the processor time of each side while they run; latency is the median of SENDs and of WRITEs of 64 bytes, polled. Root; needs what
// `npm run test:interop` needs, and for um perftest. ROCE_PATIENCE=3 allows all programs three times as long. docs/performance.md explains the output.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { buildGuest, installPackages } from '../../test/interop/image.mjs';
import { spawnInNamespaces } from '../../test/interop/namespaces.mjs';
import { install } from '../../test/interop/packages.mjs';
import { buildUmKernel, hasUmKernel } from '../../test/interop/um/kernel.mjs';
import { summary } from '../statistics.mjs';
import { startEmulated } from './emulated.mjs';
import { Host } from './host.mjs';
import { startUm } from './um.mjs';

const { values: given } = parseArgs({
  options: {
    guest: { type: 'string', default: 'debian12' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'string' },
  },
});
const rounds = Number(given.rounds);
/** Path MTU 4096. */
const MTU = 9000;
/** Client and server: from one pair to the next one guest changes. */
const PAIRS = [
  ['rxe', 'rxe'],
  ['rxe', 'node-roce'],
  ['node-roce', 'node-roce'],
  ['node-roce', 'rxe'],
  ['roce run', 'roce run'],
];
/** s of a bandwidth run, and of the middle of it in which the processors are watched. */
const [RUN, WATCHED] = [4, 2];
/** perftest has no events with WRITE. */
const BANDWIDTH = { verb: 'send', measure: 'bw', size: 65_536, events: true };
const latencyOf = (verb) => ({ verb, measure: 'lat', size: 64, iters: 400 });

let port = 20_000;

/** Runs until perftest found a clock. */
const TRIES = 8;

async function playOnce(client, server, test, watched) {
  port++;
  const serving = await server.serve(test, port);
  const calling = client.call(test, server.side.ip4, port);
  const watches = watched ? Promise.all([client, server].map((host) => host.watch(WATCHED))) : [];
  const { code, output } = await calling.done;
  const served = await serving.done;
  const [atClient, atServer] = await watches;
  if (code !== 0 || served.code !== 0)
    throw new Error(
      `${test.verb} ${test.measure} ended with ${code} and ${served.code}: ${output}${served.output}`,
    );
  return { figure: client.figure(output, test), atClient, atServer };
}

async function play(...given) {
  for (let left = TRIES; left > 0; left--) {
    const played = await playOnce(...given);
    if (played.figure !== undefined) return played;
  }
  throw new Error(`perftest found no clock ${TRIES} times: the machine is too busy`);
}

async function measure(hosts, [client, server], messages) {
  await hosts.a.become(client);
  await hosts.b.become(server);
  const name = `${client} → ${server}`;
  if (messages[name] === undefined) {
    // Only a run of this length tells how many messages it takes: in a short one, V8 has compiled too little.
    messages[name] = 300;
    for (const seconds of [1, RUN, RUN]) {
      const { figure } = await play(hosts.a, hosts.b, { ...BANDWIDTH, iters: messages[name] }, false);
      messages[name] = Math.max(300, Math.round((figure * 2 ** 20 * seconds) / BANDWIDTH.size));
    }
  }
  const stream = await play(hosts.a, hosts.b, { ...BANDWIDTH, iters: messages[name] }, true);
  const send = await play(hosts.a, hosts.b, latencyOf('send'), false);
  const write = await play(hosts.a, hosts.b, latencyOf('write'), false);
  const cost = ({ busy, packets } = {}) => (packets > 0 ? (busy * 1e9) / packets : undefined);
  const sample = {
    name,
    mibPerSecond: stream.figure,
    clientNsPerPacket: cost(stream.atClient),
    serverNsPerPacket: cost(stream.atServer),
    sendLatency: send.figure,
    writeLatency: write.figure,
  };
  console.error(JSON.stringify(sample));
  return sample;
}

const text = (samples, key, digits) => {
  const values = samples.map((sample) => sample[key]).filter((value) => value !== undefined);
  if (values.length === 0) return '–';
  const { median, min, max } = summary(values);
  return `${median.toFixed(digits)} (${min.toFixed(digits)} … ${max.toFixed(digits)})`;
};

installPackages();
const accelerator = process.env.ROCE_GUEST_ACCEL || (hasUmKernel(given.guest) ? 'um' : 'tcg');
const isUm = accelerator === 'um';
// The network namespaces of User-Mode Linux are within one of this program's own, and end with it.
if (isUm && !process.env.ROCE_BENCH_KERNEL) {
  install([['ib_send_bw', 'perftest']]);
  buildGuest(given.guest);
  const env = { ...process.env, ROCE_BENCH_KERNEL: buildUmKernel(given.guest) };
  process.exit(await spawnInNamespaces(process.execPath, process.argv.slice(1), { env }).done);
}
const directory = mkdtempSync(join(tmpdir(), 'roce-bench-rxe-'));
let sides = [];
for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, () => {
    for (const side of sides) side.stop();
    rmSync(directory, { recursive: true, force: true });
    process.exit(1);
  });
try {
  const started = isUm
    ? await startUm(given.guest, process.env.ROCE_BENCH_KERNEL, directory, MTU)
    : await startEmulated(given.guest, directory, MTU);
  sides = started.sides;
  const hosts = { a: new Host(sides[0]), b: new Host(sides[1]) };
  const samples = [];
  const messages = {};
  for (let round = 0; round < rounds; round++)
    for (const pair of PAIRS) samples.push(await measure(hosts, pair, messages));
  const where = `${cpus()[0].model}, ${cpus().length} processors; ${started.where}`;
  console.log(`${where}; ${rounds} rounds\n`);
  console.log(
    '| client → server | SEND 64 KiB, MiB/s | CPU of the client, ns a packet | CPU of the server, ns a packet | SEND 64 B, µs | WRITE 64 B, µs |',
  );
  console.log('|---|---|---|---|---|---|');
  for (const [client, server] of PAIRS) {
    const own = samples.filter(({ name }) => name === `${client} → ${server}`);
    const columns = [
      text(own, 'mibPerSecond', 1),
      text(own, 'clientNsPerPacket', 0),
      text(own, 'serverNsPerPacket', 0),
      text(own, 'sendLatency', 1),
      text(own, 'writeLatency', 1),
    ];
    console.log(`| ${client} → ${server} | ${columns.join(' | ')} |`);
  }
  if (given.json) writeFileSync(given.json, `${JSON.stringify({ where, rounds, samples }, undefined, 1)}\n`);
} finally {
  for (const side of sides) side.stop();
  rmSync(directory, { recursive: true, force: true });
}
