/** `roce demo`: two adapters on loopback addresses and all three ways to move data, checked. */
import { createHash } from 'node:crypto';
import { resolve } from 'node:path';
import {
  type CompletionQueue,
  completionError,
  type Device,
  type MemoryRegion,
  openDevice,
  type QueuePair,
  RoceError,
  type SendWr,
} from '@node-roce/verbs-api';
import type { Terminal } from '../terminal.ts';

interface Options {
  a: string;
  b: string;
  size: number;
  trace: string;
  udpPort: number;
  json: boolean;
}

interface Row {
  what: string;
  messages: number;
  bytes: number;
  packets: number;
  retransmitted: number;
  seconds: number;
  sha256: string;
  equal: boolean;
}

const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const ROUND_TRIPS = 2000;
/** Messages of a series, and how many of them are out at once. */
const MESSAGE = 1 << 20;
const DEPTH = 8;

export async function run(_args: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  // Timed without the tracer, which copies every packet; then one message of each kind with it.
  const { rows, roundTrip, pathMtu } = await measure(options);
  const traced = await trace(options);
  const ok = rows.every((row) => row.equal) && traced;
  if (options.json) {
    terminal.json({ ok, pathMtu, operations: rows, roundTripMicroseconds: roundTrip, trace: options.trace });
    return ok ? 0 : 1;
  }
  const { colors } = terminal;
  terminal.line(
    `${colors.bold('Two RoCEv2 adapters in this process')}: ${options.a} and ${options.b}, UDP port ${options.udpPort}, path MTU ${pathMtu}`,
  );
  terminal.line();
  const head = ['', 'messages', 'bytes', 'packets', 'sent again', 'Gb/s', 'SHA-256'];
  const body = rows.map((row) => [
    row.what,
    `${row.messages}`,
    `${row.bytes}`,
    `${row.packets}`,
    `${row.retransmitted}`,
    ((row.bytes * 8) / row.seconds / 1e9).toFixed(2),
    `${row.sha256.slice(0, 12)}… ${row.equal ? 'equal' : 'DIFFERS'}`,
  ]);
  const widths = head.map((_, i) => Math.max(...[head, ...body].map((cells) => cells[i].length)));
  const line = (cells: string[]) =>
    cells
      .map((cell, i) => (i === 0 || i === 6 ? cell.padEnd(widths[i]) : cell.padStart(widths[i])))
      .join('  ');
  terminal.line(colors.dim(line(head)));
  for (const [i, cells] of body.entries()) {
    terminal.line(rows[i].equal ? line(cells) : colors.red(line(cells)));
  }
  terminal.line();
  terminal.line(
    `Round trip of 64-byte messages: ${roundTrip.p50.toFixed(1)} µs (p50), ${roundTrip.p99.toFixed(1)} µs (p99), both ends in one thread`,
  );
  terminal.line(`Every packet of one message of each kind: ${options.trace}`);
  terminal.line(ok ? colors.green('All data arrived as it was sent.') : colors.red('Data differs.'));
  terminal.message('');
  terminal.message(
    `Look at the packets: npx roce dump ${options.trace} | head, or open the file with Wireshark.`,
  );
  return ok ? 0 : 1;
}

/** One side: a device, a queue pair, and memory open to the other side. */
interface Side {
  device: Device;
  cq: CompletionQueue;
  qp: QueuePair;
  bytes: Uint8Array;
  mr: MemoryRegion;
}

async function openPair(
  options: Options,
  size: number,
  traceFile?: string,
): Promise<[Side, Side, () => Promise<void>]> {
  const devices: Device[] = [];
  const close = async () => {
    for (const device of devices) await device.close();
  };
  const side = async (address: string, file?: string): Promise<Side> => {
    const device = await openDevice({
      address,
      port: options.udpPort,
      ...(file === undefined ? {} : { trace: file }),
    });
    devices.push(device);
    const pd = await device.allocPd();
    const cq = await device.createCq(64);
    const qp = await pd.createQp({ sendCq: cq });
    const bytes = new Uint8Array(size);
    const mr = await pd.registerMr(bytes, { access: { remoteRead: true, remoteWrite: true } });
    return { device, cq, qp, bytes, mr };
  };
  try {
    const a = await side(options.a, traceFile);
    const b = await side(options.b);
    await a.qp.connect(b.qp.connectionData());
    await b.qp.connect(a.qp.connectionData());
    return [a, b, close];
  } catch (error) {
    await close();
    if (error instanceof RoceError && error.errno === 'EADDRINUSE') {
      throw new RoceError(
        error.code,
        `${error.message}; or try other addresses or another port: roce demo --a 127.0.0.3 --b 127.0.0.4, roce demo --udp-port 24791`,
        {
          errno: 'EADDRINUSE',
          cause: error,
        },
      );
    }
    throw error;
  }
}

async function success(cq: CompletionQueue): Promise<void> {
  const wc = await cq.next();
  if (!wc.ok) throw completionError(wc);
}

/** Posts a series of requests, `DEPTH` at a time, and waits for all of them. */
async function series(side: Side, count: number, make: (i: number) => SendWr): Promise<void> {
  let posted = 0;
  for (let done = 0; done < count; done++) {
    while (posted < count && posted - done < DEPTH) side.qp.postSend(make(posted++));
    await success(side.cq);
  }
}

interface Measured {
  rows: Row[];
  /** Microseconds. */
  roundTrip: { p50: number; p99: number };
  pathMtu: number;
}

async function measure(options: Options): Promise<Measured> {
  const { size } = options;
  const [a, b, close] = await openPair(options, size);
  try {
    const count = Math.ceil(size / MESSAGE);
    const part = (i: number) => ({ offset: i * MESSAGE, length: Math.min(MESSAGE, size - i * MESSAGE) });
    const rows: Row[] = [];
    const timed = async (
      what: string,
      source: Side,
      target: Side,
      salt: number,
      move: () => Promise<void>,
    ) => {
      fillPattern(source.bytes, salt);
      target.bytes.fill(0);
      const before = [await a.qp.counters(), await b.qp.counters()];
      const start = performance.now();
      await move();
      const seconds = (performance.now() - start) / 1000;
      const after = [await a.qp.counters(), await b.qp.counters()];
      const sum = (name: string) =>
        after.reduce((total, counts, i) => total + counts[name] - before[i][name], 0);
      const digest = sha256(target.bytes);
      rows.push({
        what,
        messages: count,
        bytes: size,
        packets: sum('sentPackets'),
        retransmitted: sum('retransmittedPackets'),
        seconds,
        sha256: digest,
        equal: digest === sha256(source.bytes),
      });
    };

    await timed('SEND', a, b, 1, async () => {
      for (let i = 0; i < Math.min(count, 64); i++) b.qp.postRecv({ sgList: [{ mr: b.mr, ...part(i) }] });
      const received = (async () => {
        for (let i = 0; i < count; i++) {
          await success(b.cq);
          if (i + 64 < count) b.qp.postRecv({ sgList: [{ mr: b.mr, ...part(i + 64) }] });
        }
      })();
      await series(a, count, (i) => ({ opcode: 'SEND', signaled: true, sgList: [{ mr: a.mr, ...part(i) }] }));
      await received;
    });
    await timed('RDMA WRITE', a, b, 2, () =>
      series(a, count, (i) => ({
        opcode: 'RDMA_WRITE',
        signaled: true,
        sgList: [{ mr: a.mr, ...part(i) }],
        remote: b.mr.remote(i * MESSAGE),
      })),
    );
    await timed('RDMA READ', b, a, 3, () =>
      series(a, count, (i) => ({
        opcode: 'RDMA_READ',
        signaled: true,
        sgList: [{ mr: a.mr, ...part(i) }],
        remote: b.mr.remote(i * MESSAGE),
      })),
    );
    const pathMtu = Math.min(a.device.query().activeMtu, b.device.query().activeMtu);
    return { rows, roundTrip: pingpong(a, b, Math.min(64, size)), pathMtu };
  } finally {
    await close();
  }
}

/** Round trips, polled by a loop in this thread. */
function pingpong(a: Side, b: Side, length: number): { p50: number; p99: number } {
  const times: number[] = [];
  const wait = (side: Side, completions: number) => {
    while (completions > 0) {
      for (const wc of side.cq.poll(completions)) {
        if (!wc.ok) throw completionError(wc);
        completions--;
      }
      (side === a ? b : a).cq.poll(0);
    }
  };
  for (let i = 0; i < ROUND_TRIPS; i++) {
    a.qp.postRecv({ sgList: [{ mr: a.mr, length }] });
    b.qp.postRecv({ sgList: [{ mr: b.mr, length }] });
    const start = performance.now();
    a.qp.postSend({ opcode: 'SEND', sgList: [{ mr: a.mr, length }] });
    wait(b, 1);
    b.qp.postSend({ opcode: 'SEND', sgList: [{ mr: b.mr, length }] });
    wait(a, 1);
    times.push((performance.now() - start) * 1000);
  }
  times.sort((x, y) => x - y);
  return { p50: times[times.length >> 1], p99: times[Math.floor(times.length * 0.99)] };
}

/** One message of each kind, every packet of it in the file. */
async function trace(options: Options): Promise<boolean> {
  const length = 20_001;
  const [a, b, close] = await openPair(options, 1 << 16, resolve(options.trace));
  try {
    fillPattern(a.bytes, 4);
    const want = sha256(a.bytes.subarray(0, length));
    const sgList = [{ mr: a.mr, length }];
    b.qp.postRecv({ sgList: [{ mr: b.mr, length }] });
    await series(a, 1, () => ({ opcode: 'SEND', signaled: true, sgList }));
    await success(b.cq);
    const sent = sha256(b.bytes.subarray(0, length)) === want;
    b.bytes.fill(0);
    await series(a, 1, () => ({ opcode: 'RDMA_WRITE', signaled: true, sgList, remote: b.mr.remote() }));
    const written = sha256(b.bytes.subarray(0, length)) === want;
    a.bytes.fill(0);
    await series(a, 1, () => ({ opcode: 'RDMA_READ', signaled: true, sgList, remote: b.mr.remote() }));
    return sent && written && sha256(a.bytes.subarray(0, length)) === want;
  } finally {
    await close();
  }
}

function fillPattern(bytes: Uint8Array, salt: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 7 + (i >> 8) * 13 + (i >> 16) + salt) & 0xff;
}
