// node bench/rxe/run.mjs [--guest debian12|debian13] [--rounds N] [--json FILE]
//
// rxe and node-roce, each as client and as server, and perftest by `roce run`, between two guests under QEMU whose network cards are
// connected to each other: the same link, processors and kernel for all pairs, which take turns. Bandwidth is of SENDs of 64 KiB by events, with
// the processor time of each guest while they run; latency is the median of SENDs and of WRITEs of 64 bytes, polled. Root; needs what
// `npm run test:interop` needs. ROCE_PATIENCE=3 allows all programs three times as long. docs/performance.md explains the output.
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Guest } from '../../test/capture-real/guest.mjs';
import { installPackages } from '../../test/interop/image.mjs';
import { summary } from '../statistics.mjs';
import { Host } from './host.mjs';
import { buildImage } from './image.mjs';

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

async function play(client, server, test, watched) {
  port++;
  const serving = await server.serve(test, port);
  const calling = client.call(test, server.guest.ip4, port);
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

async function measure(hosts, [client, server], messages) {
  await hosts.a.become(client);
  await hosts.b.become(server);
  const name = `${client} → ${server}`;
  if (messages[name] === undefined) {
    const { figure } = await play(hosts.a, hosts.b, { ...BANDWIDTH, iters: 300 }, false);
    messages[name] = Math.max(300, Math.round((figure * 2 ** 20 * RUN) / BANDWIDTH.size));
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
const directory = mkdtempSync(join(tmpdir(), 'roce-bench-rxe-'));
const guests = [];
for (const signal of ['SIGINT', 'SIGTERM'])
  process.once(signal, () => {
    for (const guest of guests) guest.stop();
    rmSync(directory, { recursive: true, force: true });
    process.exit(1);
  });
try {
  const image = buildImage(given.guest, directory);
  // The card of each guest sends to the socket at which the other's receives.
  symlinkSync(join(directory, 'guest-b'), join(directory, 'link-a'));
  symlinkSync(join(directory, 'guest-a'), join(directory, 'link-b'));
  for (const side of ['a', 'b'])
    guests.push(
      await Guest.start({ side, release: given.guest, image, directory, mtu: MTU, prepare: 'true' }),
    );
  const [a, b] = guests;
  await a.must(`ping -c 2 ${b.ip4}`);
  const kernel = (await a.must('uname -r')).trim();
  const hosts = { a: new Host(a), b: new Host(b) };
  const samples = [];
  const messages = {};
  for (let round = 0; round < rounds; round++)
    for (const pair of PAIRS) samples.push(await measure(hosts, pair, messages));
  const where = `${cpus()[0].model}, ${cpus().length} processors; guests: Linux ${kernel}, 2 processors each, emulated`;
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
  for (const guest of guests) guest.stop();
  rmSync(directory, { recursive: true, force: true });
}
