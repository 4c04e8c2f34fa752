/** `roce pingpong`: ibv_rc_pingpong's peer, as server and as client. */
import { lookup } from 'node:dns/promises';
import { isIPv4 } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { interfaceByAddress } from '@node-roce/link';
import {
  Access,
  type CompletionQueue,
  completionError,
  type Device,
  type MemoryRegion,
  openDevice,
  type QueuePair,
  RoceError,
  WorkCompletion,
} from '@node-roce/verbs-api';
import { gidToIpText, gidToText, isIpv4Mapped, isLinkLocal } from '@node-roce/wire';
import { clientExchange, type PingpongAddress, serveExchange } from '../pingpong-exchange.ts';
import { sourceFor } from '../route.ts';
import type { Terminal } from '../terminal.ts';

interface Options {
  port: number;
  size: number;
  iters: number;
  mtu: number;
  rxDepth: number;
  events: boolean;
  check: boolean;
  bind?: string;
  timeout: number;
  json: boolean;
}

const RECV_ID = 1;
const SEND_ID = 2;
/** The tool's pattern: this everywhere, and a zero at each page's first byte of what the client sends. */
const FILL = 0x7b;
const PAGE = 4096;

export async function run(args: readonly string[], options: Options, terminal: Terminal): Promise<number> {
  const host = args[0];
  const { signal } = terminal;
  const end =
    host === undefined
      ? await Endpoint.serve(options, signal, terminal)
      : await Endpoint.call(host, options, signal);
  try {
    if (!options.json) {
      terminal.line(`  local address:  ${describe(end.local)}`);
      terminal.line(`  remote address: ${describe(end.remote)}`);
      terminal.flush();
    }
    const seconds = await end.exchangeMessages(signal);
    const wrong = options.check ? end.wrongPages() : [];
    const counters = await end.device.counters();
    report(end, options, seconds, wrong, counters, terminal);
    return wrong.length === 0 ? 0 : 1;
  } finally {
    await end.close();
  }
}

function report(
  end: Endpoint,
  options: Options,
  seconds: number,
  wrong: number[],
  counters: Record<string, number>,
  terminal: Terminal,
): void {
  const { size, iters } = options;
  const bytes = 2 * size * iters;
  if (options.json) {
    const side = ({ qpNum, psn, gid }: PingpongAddress) => ({ qpNum, psn, gid: gidToText(gid) });
    terminal.json({
      local: side(end.local),
      remote: side(end.remote),
      size,
      mtu: options.mtu,
      iters,
      bytes,
      seconds,
      mbitPerSecond: (bytes * 8) / seconds / 1e6,
      microsecondsPerIteration: (seconds * 1e6) / iters,
      retransmittedPackets: counters.retransmittedPackets,
      icrcErrors: counters.icrcErrors + counters.icrcOutOfWindow,
      ...(options.check ? { wrongPages: wrong } : {}),
    });
    return;
  }
  terminal.line(
    `${bytes} bytes in ${seconds.toFixed(2)} seconds = ${((bytes * 8) / seconds / 1e6).toFixed(2)} Mbit/sec`,
  );
  terminal.line(
    `${iters} iters in ${seconds.toFixed(2)} seconds = ${((seconds * 1e6) / iters).toFixed(2)} usec/iter`,
  );
  for (const page of wrong) terminal.line(`invalid data in page ${page}`);
}

const hex = (value: number, digits: number) => `0x${value.toString(16).padStart(digits, '0')}`;

function describe({ lid, qpNum, psn, gid }: PingpongAddress): string {
  return `LID ${hex(lid, 4)}, QPN ${hex(qpNum, 6)}, PSN ${hex(psn, 6)}, GID ${gidToText(gid)}`;
}

/** One side: a device, a connected queue pair, a buffer. */
class Endpoint {
  readonly device: Device;
  readonly local: PingpongAddress;
  remote!: PingpongAddress;
  readonly #options: Options;
  readonly #cq: CompletionQueue;
  readonly #qp: QueuePair;
  readonly #mr: MemoryRegion;
  readonly #buffer: Uint8Array;
  readonly #isClient: boolean;
  #posted = 0;

  private constructor(
    device: Device,
    cq: CompletionQueue,
    qp: QueuePair,
    mr: MemoryRegion,
    buffer: Uint8Array,
    options: Options,
    isClient: boolean,
  ) {
    this.device = device;
    this.#cq = cq;
    this.#qp = qp;
    this.#mr = mr;
    this.#buffer = buffer;
    this.#options = options;
    this.#isClient = isClient;
    this.local = { lid: 0, qpNum: qp.qpNum, psn: qp.initialPsn, gid: device.gids[0].gid };
  }

  static async #open(address: string, options: Options, isClient: boolean): Promise<Endpoint> {
    const device = await openDevice({ address });
    try {
      const pd = await device.allocPd();
      const cq = await device.createCq(options.rxDepth + 1);
      const buffer = new Uint8Array(options.size).fill(isClient ? FILL : FILL + 1);
      if (isClient) for (let i = 0; i < options.size; i += PAGE) buffer[i] = 0;
      const mr = await pd.registerMr(buffer, { access: Access.LOCAL_WRITE });
      const cap = {
        maxSendWr: 1,
        maxRecvWr: options.rxDepth,
        maxSendSge: 1,
        maxRecvSge: 1,
        maxInlineData: 0,
      };
      const qp = await pd.createQp({ sendCq: cq, cap });
      await qp.toInit({ access: 0 });
      const end = new Endpoint(device, cq, qp, mr, buffer, options, isClient);
      end.#postReceives(options.rxDepth);
      return end;
    } catch (error) {
      await device.close();
      throw error;
    }
  }

  /** Waits for a client; the device is opened on the address that the client's GID asks for. */
  static async serve(options: Options, signal: AbortSignal, terminal: Terminal): Promise<Endpoint> {
    if (!options.json) terminal.message(`waiting for a client at TCP port ${options.port}`);
    let end: Endpoint | undefined;
    try {
      const socket = await serveExchange({ port: options.port, signal }, async (remote, at) => {
        const address = options.bind ?? addressFor(remote.gid, at);
        end = await Endpoint.#open(address, options, false);
        await end.#connect(remote);
        return end.local;
      });
      socket.destroy();
      return end as unknown as Endpoint;
    } catch (error) {
      await end?.close();
      throw error;
    }
  }

  static async call(host: string, options: Options, signal: AbortSignal): Promise<Endpoint> {
    const { address: peer } = await lookup(host);
    const end = await Endpoint.#open(options.bind ?? (await sourceFor(peer)), options, true);
    try {
      const within = AbortSignal.any([signal, AbortSignal.timeout(Math.ceil(options.timeout * 1000))]);
      const { socket, remote, done } = await clientExchange(
        { host: peer, port: options.port, signal: within },
        end.local,
      );
      // The server connects before it answers; we may only send when it is ready, and it waits for 'done'.
      await end.#connect(remote);
      done();
      socket.end();
      socket.on('error', () => {});
      return end;
    } catch (error) {
      await end.close();
      throw error;
    }
  }

  async #connect(remote: PingpongAddress): Promise<void> {
    this.remote = remote;
    await this.#qp.connect(
      { qpNum: remote.qpNum, psn: remote.psn, gid: gidToIpText(remote.gid) },
      { pathMtu: this.#options.mtu, maxRdAtomic: 1, maxDestRdAtomic: 1, access: 0, hopLimit: 1 },
    );
  }

  #postReceives(count: number): void {
    for (let i = 0; i < count; i++) this.#qp.postRecv({ wrId: RECV_ID, sgList: [{ mr: this.#mr }] });
    this.#posted += count;
  }

  #postSend(): void {
    this.#qp.postSend({ wrId: SEND_ID, opcode: 'SEND', signaled: true, sgList: [{ mr: this.#mr }] });
  }

  /** As the tool: one message is out at a time each way; returns the seconds it took. */
  async exchangeMessages(signal: AbortSignal): Promise<number> {
    const { iters, rxDepth } = this.#options;
    let received = 0;
    let sent = 0;
    let pending = RECV_ID;
    const start = performance.now();
    if (this.#isClient) {
      this.#postSend();
      pending |= SEND_ID;
    }
    const completions = [new WorkCompletion(), new WorkCompletion()];
    while (received < iters || sent < iters) {
      const count = await this.#poll(completions, signal);
      for (let i = 0; i < count; i++) {
        const wc = completions[i];
        if (!wc.ok) throw completionError(wc);
        const id = wc.wrIdNumber;
        if (id === RECV_ID) {
          received++;
          if (--this.#posted <= 1) this.#postReceives(rxDepth - this.#posted);
        } else sent++;
        pending &= ~id;
        if (sent < iters && pending === 0) {
          this.#postSend();
          pending = RECV_ID | SEND_ID;
        }
      }
    }
    return (performance.now() - start) / 1000;
  }

  /** The next completions: by polling, with a look at the event loop now and then, or by events. */
  async #poll(into: WorkCompletion[], signal: AbortSignal): Promise<number> {
    const deadline = performance.now() + this.#options.timeout * 1000;
    for (;;) {
      for (let spin = 0; spin < 64; spin++) {
        const count = this.#cq.pollInto(into);
        if (count > 0) return count;
        if (this.#options.events) break;
      }
      signal.throwIfAborted();
      if (performance.now() > deadline) {
        throw new RoceError('ERR_ROCE_TIMEOUT', `the peer was silent for ${this.#options.timeout} s`, {
          errno: 'EIO',
        });
      }
      if (!this.#options.events) {
        await nextTurn();
        continue;
      }
      const silence = AbortSignal.timeout(Math.max(1, Math.ceil(deadline - performance.now())));
      await this.#cq.wait({ signal: AbortSignal.any([signal, silence]) }).catch((error) => {
        if (!silence.aborted) throw error;
      });
    }
  }

  /** Pages of the server's buffer whose first byte is not what a client sends. */
  wrongPages(): number[] {
    if (this.#isClient) return [];
    const wrong: number[] = [];
    for (let i = 0; i < this.#buffer.length; i += PAGE) if (this.#buffer[i] !== 0) wrong.push(i / PAGE);
    return wrong;
  }

  /** The last message's ACK has to leave before the device does. */
  async close(): Promise<void> {
    await nextTurn();
    await this.device.close();
  }
}

/** The address of the interface that a client reached us at, of the kind that its GID is. */
function addressFor(gid: Uint8Array, reachedAt: string): string {
  const reached = reachedAt.replace(/^::ffff:/i, '').split('%')[0];
  const family = isIpv4Mapped(gid) ? 4 : 6;
  if (isIPv4(reached) === (family === 4)) return reached;
  const nic = interfaceByAddress(reached);
  const found = nic.addresses.find((a) => a.family === family && a.linkLocal === isLinkLocal(gid));
  if (found) return found.address;
  throw new RoceError(
    'ERR_ROCE_NO_INTERFACE',
    `${nic.name} has no IPv${family} address for the peer’s GID ${gidToText(gid)}`,
    {
      errno: 'EADDRNOTAVAIL',
      attribute: 'bind',
      expected: 'an address of the peer’s kind: --bind ADDRESS',
    },
  );
}
