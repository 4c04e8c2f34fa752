/**
 * The analysis of the captures of the real rxe, compared with the output of its programs: which queue pairs
 * talked, number and sizes of messages, the operation that failed and how. Each capture is read whole, without
 * the connection manager's messages, and cut at 96 bytes.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type Analysis,
  type Connection,
  FlowAnalyzer,
  type Message,
  readPackets,
} from '@node-roce/capture/node';
import { PcapEncoder } from '@node-roce/pcap';
import { openCapture } from '@node-roce/pcap/node';
import { describe, expect, test } from 'vitest';
import { parseSidecar, type Sidecar } from '../sim/model-replay/sidecar.ts';

const folder = join(import.meta.dirname, '../fixtures/captures');
const A = /^(10\.77\.0\.2|fd77::2)$/;

interface Wanted {
  operation: string;
  bytes: number;
  failure?: string | undefined;
}

/** rxprobe's words: `sendimm:5000`, `badkey-read:100`, `faa`. */
const PROBE: Readonly<Record<string, string>> = {
  send: 'SEND',
  sendse: 'SEND',
  sendinl: 'SEND',
  sendimm: 'SEND_WITH_IMM',
  sendinv: 'SEND_WITH_INV',
  write: 'RDMA_WRITE',
  mwwrite: 'RDMA_WRITE',
  writeimm: 'RDMA_WRITE_WITH_IMM',
  read: 'RDMA_READ',
  faa: 'FETCH_ADD',
  cas: 'CMP_SWAP',
};

/** Statuses of completions, and their names in the analysis. */
const FAILURES: Readonly<Record<string, string>> = {
  REM_ACCESS_ERR: 'remote-access-error',
  REM_INV_REQ_ERR: 'invalid-request',
  REM_OP_ERR: 'remote-operational-error',
  RNR_RETRY_EXC_ERR: 'rnr-retries-exceeded',
  RETRY_EXC_ERR: 'retries-exceeded',
};

/** They end before another retry was due: the last message is incomplete, and only the verdict names its failure. */
const OPEN_ENDED: ReadonlySet<string> = new Set(['blackhole_timeout', 'err_rnr_exhausted']);

/** The requests that A of rxprobe posted, with their completions. */
function wantedOfProbe({ command, completions }: Sidecar): Wanted[] {
  const words = command.A.flatMap((word) => /^(?:badkey-)?([a-z]+)(?::(\d+))?(?::\d+)?$/.exec(word) ?? []);
  const posted: Wanted[] = [];
  for (let i = 0; i < words.length; i += 3) {
    const operation = PROBE[words[i + 1]];
    if (operation === undefined) continue;
    const status = completions.A[posted.length]?.status;
    posted.push({ operation, bytes: Number(words[i + 2] ?? 8), failure: FAILURES[status ?? ''] });
  }
  return posted;
}

const times = (count: number, operation: string, bytes: number): Wanted[] =>
  Array.from({ length: count }, () => ({ operation, bytes, failure: undefined }));

const numberAfter = (words: readonly string[], option: string, fallback: number): number =>
  words.includes(option) ? Number(words[words.indexOf(option) + 1]) : fallback;

/** Sizes and iterations as perftest prints them. */
function wantedOfPerftest({ command, output }: Sidecar): { a: Wanted[]; b: Wanted[] } {
  const row = /#bytes\s+#iterations.*\n\s*(\d+)\s+(\d+)\s/.exec(output.A)!;
  const kind = /^ib_([a-z]+)_(bw|lat)$/.exec(command.A[0])!;
  const operation = { write: 'RDMA_WRITE', send: 'SEND', read: 'RDMA_READ', atomic: 'FETCH_ADD' }[
    kind[1]
  ] as string;
  const a = times(Number(row[2]), operation, Number(row[1]));
  const answered = kind[2] === 'lat' && (kind[1] === 'send' || kind[1] === 'write');
  return { a, b: answered ? a : [] };
}

/** Both sides' messages, where the command lines determine them; of several connections, those of the last. */
function wantedOf({ sidecar, name }: Fixture): { a: Wanted[]; b: Wanted[] } | undefined {
  const [program = ''] = sidecar.command.A;
  if (sidecar.isProbe) return { a: wantedOfProbe(sidecar), b: [] };
  if (/^ib_/.test(program)) return wantedOfPerftest(sidecar);
  if (/^ibv_(rc|uc|ud)_pingpong$/.test(program)) {
    const bytes = numberAfter(sidecar.command.A, '-s', 4096);
    const both = times(numberAfter(sidecar.command.A, '-n', 1000), 'SEND', bytes);
    return { a: both, b: both };
  }
  if (name === 'cm_ucmatose') return { a: times(5, 'SEND', 300), b: times(5, 'SEND', 300) };
  if (name === 'cm_rdma_client') return { a: times(1, 'SEND', 16), b: times(1, 'SEND', 16) };
  if (name === 'cm_mckey') return { a: times(4, 'SEND_WITH_IMM', 64), b: [] };
  if (name.startsWith('cm_rping')) {
    // For each ping A sends the address of its data, B reads them and confirms it; then the same for B's WRITE.
    const ping = [
      ...times(1, 'RDMA_READ', 100),
      ...times(1, 'SEND', 16),
      ...times(1, 'RDMA_WRITE', 100),
      ...times(1, 'SEND', 16),
    ];
    return { a: times(10, 'SEND', 16), b: Array.from({ length: 5 }, () => ping).flat() };
  }
  return undefined;
}

interface Fixture {
  name: string;
  path: string;
  sidecar: Sidecar;
}

const fixtures: Fixture[] = readdirSync(folder)
  .filter((file) => file.endsWith('.pcap'))
  .map((file) => {
    const name = file.slice(0, -'.pcap'.length);
    const sidecar = parseSidecar(readFileSync(join(folder, `${name}.txt`), 'utf8'));
    return { name, path: join(folder, file), sidecar };
  });

interface Analyzed {
  analysis: Analysis;
  messages: Message[];
}

type Source = Parameters<typeof readPackets>[0];

async function analyze(source: Source, isShown: (destQp: number) => boolean = () => true): Promise<Analyzed> {
  const messages: Message[] = [];
  const analyzer = new FlowAnalyzer({ onMessage: (message) => messages.push(message) });
  const { summary, addresses } = await readPackets(source, {
    onPacket: (packet) => {
      if (isShown(packet.destQp)) analyzer.add(packet);
    },
  });
  return { analysis: analyzer.finish(summary, addresses), messages };
}

async function cut(path: string, snapLength: number): Promise<AsyncIterable<Uint8Array>> {
  const encoder = new PcapEncoder({ linkType: 1, snapLength });
  for await (const records of openCapture(path)) {
    for (const { data, originalLength, seconds, nanoseconds } of records) {
      const timestamp = BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
      encoder.packet({ data: data.subarray(0, snapLength), originalLength, timestamp });
    }
  }
  async function* chunks() {
    yield encoder.take().slice();
  }
  return chunks();
}

const ways: readonly [string, (fixture: Fixture) => Promise<Analyzed>][] = [
  ['whole', ({ path }) => analyze(path)],
  ['without the connection manager', ({ path }) => analyze(path, (destQp) => destQp !== 1)],
  ['cut at 96 bytes', async ({ path }) => analyze(await cut(path, 96))],
];

/** Messages of one side of a connection, in the order of PSNs. */
function said({ messages }: Analyzed, { id, a }: Connection, side: 'A' | 'B'): Wanted[] {
  const from = A.test(a.address) === (side === 'A') ? 'a' : 'b';
  return messages
    .filter((message) => message.connection === id && message.from === from)
    .map(({ operation, bytes, failure }) => ({ operation, bytes: bytes ?? Number.NaN, failure }));
}

/** QPNs of both sides in the order of the programs' lines. */
function printedPairs({ output, probe, command }: Sidecar): [number, number][] {
  if (probe.A !== undefined && probe.B !== undefined) return [[probe.A.qpn, probe.B.qpn]];
  // perftest with the connection manager prints QPNs of its own making.
  if (command.A.includes('-R')) return [];
  const qpns = (which: string) =>
    [...output.A.matchAll(new RegExp(`${which} address:.*?QPN (0x[0-9a-f]+)`, 'g'))].map((m) => Number(m[1]));
  const [local, remote] = [qpns('local'), qpns('remote')];
  return local.map((qpn, i) => [qpn, remote[i]]);
}

describe.each(ways)('%s', (way, read) => {
  // With its ICRCs cut off, what was damaged looks whole.
  const readable = fixtures.filter(({ name }) => !(way.startsWith('cut') && name === 'corrupt_A'));

  test.each(readable)('$name', async (fixture) => {
    const analyzed = await read(fixture);
    const { connections } = analyzed.analysis;
    const { sidecar, name } = fixture;

    const pairs = printedPairs(sidecar);
    for (const [qpnA, qpnB] of pairs) {
      const found = connections.filter(({ a, b }) => {
        const [ofA, ofB] = A.test(a.address) ? [a.qpn, b.qpn] : [b.qpn, a.qpn];
        // One direction only names one of them.
        return (ofA === qpnA || ofA < 0) && (ofB === qpnB || ofB < 0);
      });
      expect(found.length, `QP ${qpnA} with ${qpnB}`).toBe(1);
    }
    if (pairs.length > 0) expect(connections.length).toBe(pairs.length);
    for (const { aToB, bToA, pairing } of connections) {
      if (aToB.packets > 0 && bToA.packets > 0) expect(pairing).not.toBe('unpaired');
    }

    const wanted = wantedOf(fixture);
    if (wanted === undefined || connections.length === 0) return;
    const last = connections.at(-1)!;
    const [failed] = wanted.a.filter(({ failure }) => failure !== undefined);
    if (OPEN_ENDED.has(name)) {
      expect(last.verdict.kind).toBe(failed.failure);
      failed.failure = undefined;
    }
    expect(said(analyzed, last, 'A'), `${name}: A`).toEqual(wanted.a);
    expect(said(analyzed, last, 'B'), `${name}: B`).toEqual(wanted.b);
  });
});

test('ibv_srq_pingpong: sixteen queue pairs, every message of 4096 bytes', async () => {
  const { analysis, messages } = await analyze(join(folder, 'pp_srq_default.pcap'));
  expect(analysis.connections.map(({ pairing }) => pairing)).toEqual(new Array(16).fill('certain'));
  expect(messages.every(({ bytes, outcome }) => bytes === 4096 && outcome === 'completed')).toBe(true);
  expect(messages.length).toBe(analysis.summary.rocePackets / 5);
});

test('texts of the findings', async () => {
  const textsOf = async (name: string) => {
    const { analysis } = await analyze(join(folder, `${name}.pcap`));
    return analysis.findings.map(({ severity, text }) => `${severity}: ${text}`);
  };
  expect(await textsOf('op_all')).toEqual([]);
  expect(await textsOf('err_oob_read')).toEqual([
    'error: #1 10.77.0.2 QP 0x69 → 10.77.0.3 QP 0x68: RDMA_READ (PSN 1193046 = 0x123456) was refused with NAK remote access error at 0.001 s; the connection ends with it',
  ]);
  expect(await textsOf('err_rnr_exhausted')).toEqual([
    'error: #1 10.77.0.2 QP 0x72 → 10.77.0.3 QP 0x71: SEND (PSN 1193047 = 0x123457) was sent 4 times and refused with RNR NAK each time; the last at 0.056 s',
    'warning: #1 10.77.0.2 QP 0x72 → 10.77.0.3 QP 0x71: 4 RNR NAKs, the first at 0.007 s: the receiver had no receive posted; the requester waited 47.2 ms in total, 16.3 ms at most',
    'warning: #1 10.77.0.2 QP 0x72 → 10.77.0.3 QP 0x71: 3 stalls with requests outstanding, 47.2 ms in total: 16.3 ms at 0.007 s (frames 4 → 5), ended by a retransmission after an RNR wait; 15.5 ms at 0.024 s (frames 6 → 7), ended by a retransmission after an RNR wait; 15.4 ms at 0.040 s (frames 8 → 9), ended by a retransmission after an RNR wait',
  ]);
  expect((await textsOf('blackhole_timeout'))[0]).toBe(
    'error: #1 10.77.0.2 QP ? → 10.77.0.3 QP 0x7d: SEND (PSN 1193046 = 0x123456) has no answer in the capture, which shows one direction: 4 packets sent for it, the last at 0.202 s',
  );
  expect(await textsOf('corrupt_A')).toContainEqual(
    expect.stringContaining('20 packets with a wrong ICRC, the first at 0.000 s'),
  );
});
