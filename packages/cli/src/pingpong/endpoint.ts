/** One side of the pingpong: a device, a connected queue pair, a buffer, and the exchange of messages. */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
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
import { gidToIpText } from '@node-roce/wire';
import type { PingpongAddress } from './exchange.ts';

export interface PingpongOptions {
  /** Bytes of a message. */
  size: number;
  /** Messages each way. */
  iters: number;
  /** Path MTU, bytes. */
  mtu: number;
  /** Receives posted at a time. */
  rxDepth: number;
  /** Sleep until a completion event instead of polling. */
  events: boolean;
  /** Look whether the data came as they should. */
  check: boolean;
  /** Seconds of silence after which the peer counts as gone. */
  timeout: number;
  udpPort: number;
}

const RECV_ID = 1;
const SEND_ID = 2;
/** With `check`, a client's pages begin with this byte; the tool's rule, and all that its server looks at. */
const PAGE_MARK = 0;
const PAGE = 4096;

/** As the tool has it, on both sides: 4.096 µs · 2^14. */
const ACK_TIMEOUT = 14;
/** ms; a requester asks again after 4 such times at the latest (IBTA vol 1 §9.7.6.1.3). */
const QUIET = Math.ceil((4 * 4.096 * 2 ** ACK_TIMEOUT) / 1000);
/** Times that a peer who says ever more is waited for. */
const LINGER_MOST = 20;

export class Endpoint implements AsyncDisposable {
  readonly device: Device;
  readonly local: PingpongAddress;
  readonly #options: PingpongOptions;
  readonly #isClient: boolean;
  readonly #cq: CompletionQueue;
  readonly #qp: QueuePair;
  readonly #sendMr: MemoryRegion;
  readonly #recvMr: MemoryRegion;
  #receives = 0;

  private constructor(
    device: Device,
    cq: CompletionQueue,
    qp: QueuePair,
    sendMr: MemoryRegion,
    recvMr: MemoryRegion,
    options: PingpongOptions,
    isClient: boolean,
  ) {
    this.device = device;
    this.#cq = cq;
    this.#qp = qp;
    this.#sendMr = sendMr;
    this.#recvMr = recvMr;
    this.#options = options;
    this.#isClient = isClient;
    this.local = { lid: 0, qpNum: qp.qpNum, psn: qp.initialPsn, gid: device.gids[0]!.gid };
  }

  /** A queue pair in INIT with all its receives posted, so that it can be told to the peer. */
  static async open(address: string, options: PingpongOptions, isClient: boolean): Promise<Endpoint> {
    const device = await openDevice({ address, port: options.udpPort });
    try {
      const { activeMtu } = device.query();
      if (options.mtu > activeMtu) {
        throw new RoceError(
          'ERR_ROCE_INVALID_ATTRIBUTE',
          `path MTU ${options.mtu} does not fit the interface of ${address}`,
          { errno: 'EINVAL', attribute: 'mtu', expected: `${activeMtu} at most` },
        );
      }
      const pd = await device.allocPd();
      const cq = await device.createCq(options.rxDepth + 1);
      // A server sends back what it received: one buffer. A client keeps the two apart, to compare them.
      const sent = new Uint8Array(options.size);
      const sendMr = await pd.registerMr(sent, { access: Access.LOCAL_WRITE });
      const recvMr = isClient
        ? await pd.registerMr(new Uint8Array(options.size), { access: Access.LOCAL_WRITE })
        : sendMr;
      // Unlike a mark on a page, any byte out of its place is seen in this.
      for (let i = 0; i < sent.length; i++) {
        sent[i] = !isClient ? 0x7b : i % PAGE === 0 ? PAGE_MARK : (i * 31 + (i >> 12) * 7) & 0xff;
      }
      const qp = await pd.createQp({
        sendCq: cq,
        cap: { maxSendWr: 1, maxRecvWr: options.rxDepth, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 },
      });
      await qp.toInit({ access: 0 });
      const endpoint = new Endpoint(device, cq, qp, sendMr, recvMr, options, isClient);
      endpoint.#postReceives();
      return endpoint;
    } catch (error) {
      await device.close();
      throw error;
    }
  }

  /** To RTS, with the tool's attributes. */
  async connect(remote: PingpongAddress): Promise<void> {
    await this.#qp.connect(
      { qpNum: remote.qpNum, psn: remote.psn, gid: gidToIpText(remote.gid) },
      {
        pathMtu: this.#options.mtu,
        maxRdAtomic: 1,
        maxDestRdAtomic: 1,
        access: 0,
        timeout: ACK_TIMEOUT,
        retryCnt: 7,
        rnrRetry: 7,
        minRnrTimer: 12,
      },
    );
  }

  #postReceives(): void {
    while (this.#receives < this.#options.rxDepth) {
      this.#qp.postRecv({ wrId: RECV_ID, sgList: [{ mr: this.#recvMr }] });
      this.#receives++;
    }
  }

  #postSend(): void {
    this.#qp.postSend({ wrId: SEND_ID, opcode: 'SEND', signaled: true, sgList: [{ mr: this.#sendMr }] });
  }

  /**
   * Sends and receives, one message at a time each way: the next one leaves when the last one is
   * acknowledged and the peer's has come.
   * @returns seconds
   */
  async play(signal: AbortSignal): Promise<number> {
    const { iters } = this.#options;
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
      const count = await this.#completions(completions, signal);
      for (const wc of completions.slice(0, count)) {
        if (!wc.ok) throw completionError(wc);
        const id = wc.wrIdNumber;
        if (id === RECV_ID) {
          received++;
          // The tool refills when one is left, and not before: receives posted are credits to the peer.
          if (--this.#receives <= 1) this.#postReceives();
        } else {
          sent++;
        }
        pending &= ~id;
        if (sent < iters && pending === 0) {
          this.#postSend();
          pending = RECV_ID | SEND_ID;
        }
      }
    }
    return (performance.now() - start) / 1000;
  }

  /** The next completions: by polling, with a turn of the event loop now and then, or by events. */
  async #completions(into: WorkCompletion[], signal: AbortSignal): Promise<number> {
    const deadline = performance.now() + this.#options.timeout * 1000;
    for (;;) {
      for (let spin = 0; spin < 64; spin++) {
        const count = this.#cq.pollInto(into);
        if (count > 0) return count;
        if (this.#options.events) break;
      }
      signal.throwIfAborted();
      const left = deadline - performance.now();
      if (left <= 0) {
        throw new RoceError('ERR_ROCE_TIMEOUT', `the peer was silent for ${this.#options.timeout} s`, {
          errno: 'EIO',
        });
      }
      if (!this.#options.events) {
        await nextTurn();
        continue;
      }
      const silence = AbortSignal.timeout(Math.ceil(left));
      await this.#cq.wait({ signal: AbortSignal.any([signal, silence]) }).catch((error) => {
        if (!silence.aborted) throw error;
      });
    }
  }

  /**
   * Pages that are not as they should be. A client compares what came back with what it sent. A server
   * knows only the rule of the tool's -c: every page begins with a zero.
   */
  wrongPages(): number[] {
    const sent = this.#sendMr.bytes();
    const received = this.#recvMr.bytes();
    const wrong: number[] = [];
    for (let start = 0; start < received.length; start += PAGE) {
      const page = Buffer.from(
        received.buffer,
        received.byteOffset + start,
        Math.min(PAGE, received.length - start),
      );
      const good = this.#isClient
        ? page.equals(sent.subarray(start, start + page.length))
        : page[0] === PAGE_MARK;
      if (!good) wrong.push(start / PAGE);
    }
    return wrong;
  }

  /**
   * Stays until the peer has been silent for as long as it may wait before it asks again: were our last ACK
   * lost, it would repeat its last message to nobody, and with rxe's `retry_cnt` of 7 for ever.
   */
  async linger(signal: AbortSignal): Promise<void> {
    const heard = async () => (await this.device.counters()).receivedPackets;
    let before = -1;
    for (let i = 0; i < LINGER_MOST && before !== (await heard()); i++) {
      before = await heard();
      await sleep(QUIET, undefined, { signal });
    }
  }

  /** The ACK of the last message has to leave before the device goes. */
  async [Symbol.asyncDispose](): Promise<void> {
    await nextTurn();
    await this.device.close();
  }
}
