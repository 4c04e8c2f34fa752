/** One side of the pingpong: a device, its queue pairs and their buffer, connected to the peer's. */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import {
  Access,
  type AddressHandle,
  type CompletionQueue,
  type Device,
  GRH_BYTES,
  type MemoryRegion,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
  type SharedReceiveQueue,
} from '@node-roce/verbs-api';
import { gidToIpText } from '@node-roce/wire';
import { type LinkChoice, openOptions } from '../link-choice.ts';
import type { PingpongAddress } from './exchange.ts';

type ServiceName = 'rc' | 'uc' | 'ud';

export interface PingpongOptions {
  type: ServiceName;
  /** One shared receive queue for all queue pairs. */
  srq: boolean;
  /** Queue pairs of each side; more than one only with `srq`. */
  qps: number;
  /** Bytes of a message. */
  size: number;
  /** Messages each way, over all queue pairs. */
  iters: number;
  /** Path MTU, bytes; a datagram's is the port's. */
  mtu: number;
  /** Receives posted at a time. */
  rxDepth: number;
  /** Sleep until a completion event instead of polling. */
  events: boolean;
  /** Validate received data. */
  check: boolean;
  /** Seconds of silence after which the peer is given up. */
  timeout: number;
  link: LinkChoice;
  udpPort: number;
}

export const RECV_ID = 1;
export const SEND_ID = 2;
/** With `check`, a client's pages begin with this byte; the tool's rule, and all that its server looks at. */
const PAGE_MARK = 0;
const PAGE = 4096;

/** As the tools have it, on both sides: 4.096 µs · 2^14. */
const ACK_TIMEOUT = 14;
/** The Q_Key of ibv_ud_pingpong. */
const QKEY = 0x1111_1111;
/** ms; a requester asks again after 4 such times at the latest (IBTA vol 1 §9.7.6.1.3). */
const QUIET = Math.ceil((4 * 4.096 * 2 ** ACK_TIMEOUT) / 1000);
/** Bounds the time that `linger` waits for a peer that keeps sending. */
const MAX_LINGER_ROUNDS = 20;

/** A queue pair, and where its datagrams go if it is of UD. */
export interface Player {
  readonly qp: QueuePair;
  ah: AddressHandle | undefined;
  remoteQpn: number;
}

/** This side of a pingpong: device, memory, queue pair and completion queue. */
export class Endpoint implements AsyncDisposable {
  readonly device: Device;
  readonly cq: CompletionQueue;
  readonly players: readonly Player[];
  readonly locals: readonly PingpongAddress[];
  readonly #options: PingpongOptions;
  readonly #isClient: boolean;
  readonly #pd: ProtectionDomain;
  readonly #srq: SharedReceiveQueue | undefined;
  readonly #sendMr: MemoryRegion;
  readonly #recvMr: MemoryRegion;
  #receives = 0;

  private constructor(
    parts: { device: Device; pd: ProtectionDomain; cq: CompletionQueue; srq?: SharedReceiveQueue },
    qps: readonly QueuePair[],
    [sendMr, recvMr]: readonly [MemoryRegion, MemoryRegion],
    options: PingpongOptions,
    isClient: boolean,
  ) {
    this.device = parts.device;
    this.#pd = parts.pd;
    this.cq = parts.cq;
    this.#srq = parts.srq;
    this.players = qps.map((qp) => ({ qp, ah: undefined, remoteQpn: 0 }));
    this.#sendMr = sendMr;
    this.#recvMr = recvMr;
    this.#options = options;
    this.#isClient = isClient;
    const { gid } = parts.device.gids[0];
    this.locals = qps.map((qp) => ({ lid: 0, qpNum: qp.qpNum, psn: qp.initialPsn, gid }));
  }

  /** Opens queue pairs in INIT with all their receives posted: ready to be advertised to the peer. */
  static async open(address: string, options: PingpongOptions, isClient: boolean): Promise<Endpoint> {
    const { rxDepth, qps: count, type } = options;
    const device = await openDevice({ address, port: options.udpPort, ...openOptions(options.link) });
    try {
      checkSizes(options, device.query().activeMtu, address);
      const pd = await device.allocPd();
      const cq = await device.createCq(rxDepth + count);
      const srq = options.srq ? await pd.createSrq({ maxWr: rxDepth, maxSge: 1 }) : undefined;
      const cap = { maxSendWr: 1, maxRecvWr: rxDepth, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
      const init = { type: SERVICES[type], sendCq: cq, cap, ...(srq ? { srq } : {}) };
      const qps: QueuePair[] = [];
      while (qps.length < count) qps.push(await pd.createQp(init));
      for (const qp of qps) await qp.toInit(type === 'ud' ? { qkey: QKEY } : { access: 0 });
      const memory = await registerBuffers(pd, options, isClient);
      const parts = { device, pd, cq, ...(srq ? { srq } : {}) };
      const endpoint = new Endpoint(parts, qps, memory, options, isClient);
      endpoint.#postReceives();
      return endpoint;
    } catch (error) {
      await device.close();
      throw error;
    }
  }

  /** To RTS with the tools' attributes: the first queue pair with the first of the peer's, and so on. */
  async connect(remotes: readonly PingpongAddress[]): Promise<void> {
    for (const [i, player] of this.players.entries()) await this.#connectOne(player, remotes[i]);
  }

  async #connectOne(player: Player, { qpNum, psn, gid: bytes }: PingpongAddress): Promise<void> {
    const gid = gidToIpText(bytes);
    player.remoteQpn = qpNum;
    if (this.#options.type === 'ud') {
      player.ah = await this.#pd.createAh({ gid });
      await player.qp.activate();
      return;
    }
    const attributes = {
      pathMtu: this.#options.mtu,
      maxRdAtomic: 1,
      maxDestRdAtomic: 1,
      access: 0,
      timeout: ACK_TIMEOUT,
      retryCnt: 7,
      rnrRetry: 7,
      minRnrTimer: 12,
    };
    await player.qp.connect({ qpNum, psn, gid }, attributes);
  }

  #postReceives(): void {
    const queue = this.#srq ?? this.players[0].qp;
    while (this.#receives < this.#options.rxDepth) {
      queue.postRecv({ wrId: RECV_ID, sgList: [{ mr: this.#recvMr }] });
      this.#receives++;
    }
  }

  /** Counts a used receive. As in the tools, new ones are posted when one for each queue pair is left, not before. */
  useReceive(): void {
    if (--this.#receives <= this.players.length) this.#postReceives();
  }

  postSend({ qp, ah, remoteQpn }: Player): void {
    qp.postSend({
      wrId: SEND_ID,
      opcode: 'SEND',
      signaled: true,
      sgList: [{ mr: this.#sendMr, offset: headRoom(this.#options.type) }],
      ...(ah ? { ud: { ah, remoteQpn, remoteQkey: QKEY } } : {}),
    });
  }

  /**
   * Pages that are not as they should be. A client compares what came back with what it sent. A server
   * knows only the rule of the tools' -c: every page begins with a zero.
   */
  wrongPages(): number[] {
    const sent = this.#sendMr.bytes(headRoom(this.#options.type));
    const received = this.#recvMr.bytes(headRoom(this.#options.type));
    const wrong: number[] = [];
    for (let start = 0; start < received.length; start += PAGE) {
      const page = Buffer.from(received.subarray(start, start + PAGE));
      const good = this.#isClient
        ? page.equals(sent.subarray(start, start + page.length))
        : page[0] === PAGE_MARK;
      if (!good) wrong.push(start / PAGE);
    }
    return wrong;
  }

  /**
   * RC: stays until the peer has been silent for as long as it may wait before it asks again: were our last ACK
   * lost, it would repeat its last message to nobody, and with rxe's `retry_cnt` of 7 for ever.
   */
  async linger(signal: AbortSignal): Promise<void> {
    if (this.#options.type !== 'rc') return;
    const heard = async () => (await this.device.counters()).receivedPackets;
    let before = -1;
    for (let i = 0; i < MAX_LINGER_ROUNDS && before !== (await heard()); i++) {
      before = await heard();
      await sleep(QUIET, undefined, { signal });
    }
  }

  /** The last packets posted or owed have to leave before the device closes. */
  async [Symbol.asyncDispose](): Promise<void> {
    await nextTurn();
    await this.device.close();
  }
}

const SERVICES = { rc: 'RC', uc: 'UC', ud: 'UD' } as const;

/** Bytes before the data: a datagram's receive has the sender's IP header there. */
const headRoom = (type: ServiceName) => (type === 'ud' ? GRH_BYTES : 0);

function checkSizes({ type, mtu, size }: PingpongOptions, activeMtu: number, address: string): void {
  if (type === 'ud' ? size <= activeMtu : mtu <= activeMtu) return;
  const [attribute, what] =
    type === 'ud' ? ['size', `a datagram of ${size} bytes`] : ['mtu', `path MTU ${mtu}`];
  throw new RoceError('ERR_ROCE_INVALID_ATTRIBUTE', `${what} does not fit the interface of ${address}`, {
    errno: 'EINVAL',
    attribute,
    expected: `${activeMtu} at most`,
  });
}

/** The messages' memory, to send from and to receive into: one buffer at a server, who sends it back; two that a client compares. */
async function registerBuffers(
  pd: ProtectionDomain,
  { size, type }: PingpongOptions,
  isClient: boolean,
): Promise<[MemoryRegion, MemoryRegion]> {
  const register = (bytes: Uint8Array) => pd.registerMr(bytes, { access: Access.LOCAL_WRITE });
  const all = new Uint8Array(headRoom(type) + size);
  const data = all.subarray(headRoom(type));
  // Unlike a mark on a page, any byte out of its place is seen in this.
  for (let i = 0; i < size; i++) {
    data[i] = !isClient ? 0x7b : i % PAGE === 0 ? PAGE_MARK : (i * 31 + (i >> 12) * 7) & 0xff;
  }
  const sendMr = await register(all);
  return [sendMr, isClient ? await register(new Uint8Array(all.length)) : sendMr];
}
