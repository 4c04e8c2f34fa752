#!/usr/bin/env node
/**
 * Makes captures of any length, to measure readers by and to look at reports with:
 *
 *     node bench/capture/generate.mjs big.pcap --bytes 1073741824
 *     node bench/capture/generate.mjs report.pcapng --packets 100000 --loss 0.004 --rnr 0.01 --marked 0.002
 *
 * Reliable connections between a few hosts as host 1 sees them, half of them with the requester there, with WRITEs,
 * SENDs, READs and atomics, their ACKs, and the consequences of losses: NAKs, retransmissions, timeouts. Every ICRC is
 * right. The same options give the same file. On stdout, as JSON, what is known to be in it.
 */
import { closeSync, openSync, writeSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { PcapEncoder, PcapngEncoder } from '@node-roce/pcap';
import { createRandom } from '@node-roce/sim';
import { Framer } from './frames.mjs';
import { Connection } from './traffic.mjs';

const ETHERNET = 1;
const WRITE_AT = 1 << 20;
const START_SECONDS = 1_767_225_600;
/** Without a length. */
const BYTES = 64 * 1024 * 1024;
/** Peers of host 1. */
const PEERS = 3;

const DEFAULTS = {
  bytes: Number.POSITIVE_INFINITY,
  packets: Number.POSITIVE_INFINITY,
  pathMtu: 1024,
  connections: 8,
  loss: 2e-5,
  rate: 10e9,
  rnr: 1e-3,
  marked: 1e-4,
  seed: 1,
  snapLength: 262_144,
};

/**
 * Writes a capture until it has `bytes` or `packets`, whichever comes first.
 *
 * @param {string} path pcapng if it ends so, else classic pcap
 * @param {Partial<typeof DEFAULTS>} options
 * @returns what it holds: packets, bytes, and of each connection its ends, packets, and those of them
 *   that had been sent before, by the cause
 */
export function generateCapture(path, options = {}) {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const { bytes, packets, ...o } = { ...DEFAULTS, ...given };
  const limit = packets === DEFAULTS.packets && bytes === DEFAULTS.bytes ? BYTES : bytes;
  const connections = makeConnections(o);
  const encoder = makeEncoder(path, o);
  const file = openSync(path, 'w');
  let written = 0;
  let count = 0;
  let time = 0;
  const flush = () => {
    const chunk = encoder.take();
    written += chunk.length;
    for (let at = 0; at < chunk.length; ) at += writeSync(file, chunk, at);
  };
  try {
    while (count < packets && written + encoder.pending < limit) {
      const next = connections.reduce((a, b) => (b.packet.time < a.packet.time ? b : a));
      time = next.packet.time;
      const nanoseconds = Math.round(time * 1000);
      encoder.packet({
        data: next.framer.frame(next.packet),
        seconds: START_SECONDS + Math.floor(nanoseconds / 1e9),
        nanoseconds: nanoseconds % 1e9,
      });
      count++;
      note(next);
      if (encoder.pending >= WRITE_AT) flush();
      next.packet = next.packets.next().value;
    }
    flush();
  } finally {
    closeSync(file);
  }
  const truths = connections.map(({ truth }) => truth);
  return { path, packets: count, bytes: written, seconds: time / 1e6, connections: truths };
}

/** A packet goes into the capture. */
function note({ truth, packet }) {
  truth.packets++;
  if (packet.kind === 'cnp') truth.cnps++;
  if (packet.again === undefined) return;
  truth.retransmitted[packet.again] = (truth.retransmitted[packet.again] ?? 0) + 1;
}

function makeConnections({ connections, seed, rate, ...options }) {
  const random = createRandom(seed);
  const ids = Uint16Array.from({ length: 256 }, () => random.next());
  return Array.from({ length: connections }, (_, i) => {
    const peer = { host: 2 + (i % PEERS), qpn: 0x100 + Math.floor(i / PEERS), rkey: random.next() };
    const own = { host: 1, qpn: 0x11 + i, rkey: random.next() };
    const atRequester = i % 2 === 0;
    const [requester, responder] = atRequester ? [own, peer] : [peer, own];
    const connection = new Connection({
      ...options,
      atRequester,
      // One program in three waits for each message.
      depth: i % 3 === 2 ? 1 : 8,
      seed: random.next(),
      firstPsn: random.between(0, 0xff_ffff),
      start: random.between(0, 1000),
      delay: random.between(5, 30),
      rate: rate / connections,
    });
    const packets = connection.packets();
    const framer = new Framer(requester, responder, ids);
    const truth = {
      requester: { address: `192.0.2.${requester.host}`, qpn: requester.qpn },
      responder: { address: `192.0.2.${responder.host}`, qpn: responder.qpn },
      packets: 0,
      retransmitted: {},
      cnps: 0,
    };
    return { truth, framer, packets, packet: packets.next().value };
  });
}

function makeEncoder(path, { snapLength }) {
  if (!path.endsWith('.pcapng')) return new PcapEncoder({ linkType: ETHERNET, snapLength });
  const encoder = new PcapngEncoder({ application: 'node-roce bench/capture' });
  encoder.interface({ linkType: ETHERNET, snapLength, name: 'generated' });
  return encoder;
}

if (process.argv[1] === import.meta.filename) {
  const number = { type: 'string' };
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, number])),
  });
  const wrong = Object.values(values).some((value) => !(Number(value) >= 0));
  if (positionals.length !== 1 || wrong) {
    process.stderr.write(
      `usage: generate.mjs FILE ${Object.keys(DEFAULTS)
        .map((n) => `[--${n} N]`)
        .join(' ')}\n`,
    );
    process.exit(2);
  }
  const options = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number(value)]));
  process.stdout.write(`${JSON.stringify(generateCapture(positionals[0], options), null, 2)}\n`);
}
