/**
 * Two devices on real sockets with queue pairs of every kind between them and traffic that is checked: what goes on while
 * somebody else sends to the same port.
 */
import {
  type CompletionQueue,
  type Device,
  type MemoryRegion,
  type MemoryWindow,
  type OpenOptions,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
  type WorkCompletion,
} from '@node-roce/verbs-api';

export const QKEY = 0x0bad_cafe;
const GUARD = 4096;
const BYTES = 65_536;
/** The parts of a region that each queue pair has. */
const PART = 8192;
/** An unreliable message that takes longer than this, ms, was lost. */
const LOST = 2000;
/** Of it, where a READ's answer goes at the sender. */
const ANSWER = 4096;

export interface Station {
  device: Device;
  pd: ProtectionDomain;
  cq: CompletionQueue;
  mr: MemoryRegion;
  /** The region, with bytes around it that are not of it. */
  memory: Uint8Array<SharedArrayBuffer>;
}

async function openStation(address: string, options: Partial<OpenOptions>): Promise<Station> {
  const device = await openDevice({ address, ...options });
  const pd = await device.allocPd();
  const cq = await device.createCq(64);
  const memory = new Uint8Array(new SharedArrayBuffer(BYTES + 2 * GUARD), GUARD, BYTES);
  const access = { remoteWrite: true, remoteRead: true, remoteAtomic: true, mwBind: true };
  return { device, pd, cq, memory, mr: await pd.registerMr(memory, { access }) };
}

/**
 * Resolves with the promise's value, or with undefined after so many milliseconds. After a pause of this process, timers run before
 * the packets that have come meanwhile: those have two turns more.
 */
async function within<T>(
  milliseconds: number,
  promise: Promise<T>,
  signal: AbortController,
): Promise<T | undefined> {
  const abort = () => signal.abort();
  const timer = setTimeout(() => setImmediate(() => setImmediate(abort)), milliseconds);
  try {
    return await promise;
  } catch (error) {
    if (signal.signal.aborted) return undefined;
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** One device of a siege with its queue pairs and memory. */
export class Site implements AsyncDisposable {
  readonly a: Station;
  readonly b: Station;
  /** RC; RC through an SRQ and a window; UC; UD: the queue pairs of both. */
  readonly pairs: Record<'rc' | 'shared' | 'uc' | 'ud', [QueuePair, QueuePair]>;
  /** The expected data of b's region, except those that UC was to write. */
  readonly shadow = new Uint8Array(BYTES);
  readonly delivered = { rc: 0, uc: 0, ud: 0 };
  readonly #post: (message: number) => void;
  #rounds = 0;
  #window: MemoryWindow | undefined;
  readonly #ah: Awaited<ReturnType<ProtectionDomain['createAh']>>;

  private constructor(
    a: Station,
    b: Station,
    pairs: Site['pairs'],
    post: (message: number) => void,
    ah: Awaited<ReturnType<ProtectionDomain['createAh']>>,
  ) {
    this.a = a;
    this.b = b;
    this.pairs = pairs;
    this.#post = post;
    this.#ah = ah;
  }

  static async open(addresses: readonly [string, string], options: Partial<OpenOptions>): Promise<Site> {
    const [a, b] = [await openStation(addresses[0], options), await openStation(addresses[1], options)];
    const srq = await b.pd.createSrq({ maxWr: 16 });
    const make = async (type: 'RC' | 'UC' | 'UD', shared = false): Promise<[QueuePair, QueuePair]> => {
      const left = await a.pd.createQp({ type, sendCq: a.cq });
      const right = await b.pd.createQp({ type, sendCq: b.cq, ...(shared ? { srq } : {}) });
      if (type === 'UD') {
        for (const qp of [left, right]) await qp.activate({ qkey: QKEY });
      } else {
        await left.connect(right.connectionData(), { pathMtu: 1024 });
        await right.connect(left.connectionData(), { pathMtu: 1024 });
      }
      return [left, right];
    };
    const pairs = {
      rc: await make('RC'),
      shared: await make('RC', true),
      uc: await make('UC'),
      ud: await make('UD'),
    };
    const post = (part: number) => {
      const sgList = [{ mr: b.mr, offset: part * PART, length: PART / 2 }];
      const [, qp] = [pairs.rc, pairs.shared, pairs.uc, pairs.ud][part];
      if (part === 1) srq.postRecv({ sgList });
      else if (qp.recvPending === 0) qp.postRecv({ sgList });
    };
    const ah = await a.pd.createAh({ gid: addresses[1] });
    return new Site(a, b, pairs, post, ah);
  }

  /** One of each operation on each queue pair, one after the other. @throws Error when one fails or brings other bytes */
  async round(): Promise<void> {
    const round = this.#rounds++;
    await this.#reliable(this.pairs.rc[0], 0, round, this.b.mr.rkey);
    await this.#reliable(this.pairs.shared[0], 1, round, await this.#bind(round));
    await this.#unreliable(round);
    await this.#datagram(round);
  }

  /** A window of type 2 over the second part, bound anew every time. */
  async #bind(round: number): Promise<number> {
    const { b, pairs } = this;
    if (round % 8 !== 0) return this.#window!.rkey;
    await this.#window?.dealloc();
    const mw = await b.pd.allocMw(2);
    const access = { remoteWrite: true, remoteRead: true, remoteAtomic: true };
    pairs.shared[1].postSend({
      opcode: 'BIND_MW',
      signaled: true,
      bind: { mw, mr: b.mr, offset: PART, length: PART, access },
    });
    succeeded(await b.cq.next());
    this.#window = mw;
    return mw.rkey;
  }

  /** SEND, WRITE, FETCH_ADD, READ. */
  async #reliable(qp: QueuePair, part: number, round: number, rkey: number): Promise<void> {
    const { a, b, shadow } = this;
    const at = part * PART;
    const length = 1 + ((round * 977) % 3000);
    for (let i = 0; i < length; i++) a.memory[at + i] = i * 7 + round * 31 + part;
    const data = a.memory.slice(at, at + length);
    const sgList = [{ mr: a.mr, offset: at, length }];
    const remote = (offset: number) => ({ addr: b.mr.iova + BigInt(at + offset), rkey });

    this.#post(part);
    qp.postSend({ opcode: 'SEND', signaled: true, sgList });
    succeeded(await a.cq.next());
    succeeded(await b.cq.next());
    shadow.set(data, at);
    qp.postSend({ opcode: 'RDMA_WRITE', signaled: true, sgList, remote: remote(PART / 2) });
    succeeded(await a.cq.next());
    shadow.set(data, at + PART / 2);
    const word = new DataView(shadow.buffer, at + PART - 8, 8);
    const before = word.getBigUint64(0, true);
    word.setBigUint64(0, before + 3n, true);
    qp.postSend({
      opcode: 'ATOMIC_FETCH_AND_ADD',
      signaled: true,
      compareAdd: 3n,
      sgList: [{ mr: a.mr, offset: at + ANSWER, length: 8 }],
      remote: remote(PART - 8),
    });
    succeeded(await a.cq.next());
    const was = new DataView(a.memory.buffer, a.memory.byteOffset + at + ANSWER, 8).getBigUint64(0, true);
    if (was !== before) throw new Error(`an atomic brought ${was}, not ${before}`);
    const answer = [{ mr: a.mr, offset: at + ANSWER, length }];
    qp.postSend({ opcode: 'RDMA_READ', signaled: true, sgList: answer, remote: remote(PART / 2) });
    succeeded(await a.cq.next());
    if (!data.every((byte, i) => a.memory[at + ANSWER + i] === byte))
      throw new Error('a READ brought other bytes');
    this.delivered.rc += 4;
  }

  async #unreliable(round: number): Promise<void> {
    const { a, b } = this;
    const [at, length] = [2 * PART, 3000];
    a.memory.fill(round, at, at + length);
    this.#post(2);
    this.pairs.uc[0].postSend({
      opcode: 'RDMA_WRITE_WITH_IMM',
      signaled: true,
      immData: round,
      sgList: [{ mr: a.mr, offset: at, length }],
      remote: { addr: b.mr.iova + BigInt(at + PART / 2), rkey: b.mr.rkey },
    });
    succeeded(await a.cq.next());
    const wc = await this.#arrival(this.pairs.uc[1]);
    if (!wc) return;
    const arrived = b.memory.subarray(at + PART / 2, at + PART / 2 + length);
    if (!arrived.every((byte) => byte === (round & 0xff))) throw new Error('UC brought other bytes');
    this.delivered.uc++;
  }

  async #datagram(round: number): Promise<void> {
    const { a, b, shadow, pairs } = this;
    const [at, length] = [3 * PART, 500];
    a.memory.fill(round + 1, at, at + length);
    this.#post(3);
    const ud = { ah: this.#ah, remoteQpn: pairs.ud[1].qpNum, remoteQkey: QKEY };
    pairs.ud[0].postSend({ opcode: 'SEND', signaled: true, ud, sgList: [{ mr: a.mr, offset: at, length }] });
    succeeded(await a.cq.next());
    const wc = await this.#arrival(pairs.ud[1]);
    if (!wc) return;
    if (wc.srcQp !== pairs.ud[0].qpNum) throw new Error('a datagram of somebody else');
    shadow.set(b.memory.subarray(at, at + 40), at); // the GRH
    shadow.fill(round + 1, at + 40, at + 40 + length);
    this.delivered.ud++;
  }

  /** The messages that arrived, if the network has not lost them; a waiting receive serves the next. */
  async #arrival(qp: QueuePair): Promise<WorkCompletion | undefined> {
    const control = new AbortController();
    const wc = await within(LOST, this.b.cq.next({ signal: control.signal }), control);
    if (wc) succeeded(wc);
    if (wc && wc.qpNum !== qp.qpNum) throw new Error('a receive of another queue pair');
    return wc;
  }

  /** The first byte of b's memory that is not as the traffic left it, UC's part aside; −1. And the bytes around. */
  firstDifference(): number {
    const { memory } = this.b;
    const uc = (i: number) => i >= 2 * PART && i < 3 * PART;
    const region = memory.findIndex((byte, i) => !uc(i) && byte !== this.shadow[i]);
    if (region >= 0) return region;
    const whole = new Uint8Array(memory.buffer);
    return whole.findIndex((byte, i) => (i < GUARD || i >= GUARD + BYTES) && byte !== 0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.a.device.close();
    await this.b.device.close();
  }
}

function succeeded(wc: WorkCompletion): void {
  if (wc.status !== 'SUCCESS') throw new Error(`a request of QP ${wc.qpNum} ended with ${wc.status}`);
}
