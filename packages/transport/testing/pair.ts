/** Two adapters joined by a wire in virtual time: the harness of the engine's scenario tests. */
import { createRandom } from '@node-roce/wire';
import {
  Adapter,
  type AdapterOptions,
  type AhAttr,
  type AsyncEvent,
  type Congestion,
  Cqe,
  FlushLevel,
  FlushType,
  type GidEntry,
  gatherSlot,
  Icrc,
  isMemoryGone,
  type MrCreated,
  markRuns,
  type NewRing,
  type QpAttr,
  type QpCreated,
  type QpType,
  type Recovery,
  RecvWqe,
  Ring,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  SendFlags,
  SendWqe,
  SGE_WORDS,
  Sge,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
  transition,
  unfoldRuns,
  WC_STATUS_NAMES,
  WrOpcode,
  type WrOpcodeName,
  type XrcTargetOpened,
} from '../src/index.ts';

export interface Completion {
  wrId: number;
  status: string;
  opcode: number;
  byteLen: number;
  immediate: number;
  flags: number;
  qpn: number;
  srcQp: number;
  sl: number;
}

/** `::ffff:10.0.0.N`. */
export function gidOf(n: number): Uint8Array {
  return Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, n);
}

/** The route to side N. */
export function addressOf(n: number): AhAttr {
  return {
    grh: { dgid: gidOf(n), flowLabel: 0, sgidIndex: 0, hopLimit: 64, trafficClass: 0 },
    isGlobal: true,
    dlid: 0,
    sl: 0,
    srcPathBits: 0,
    staticRate: 0,
    portNum: 1,
  };
}

/** The Q_Key of UD queue pairs here. */
export const QKEY = 0x1111_1111;

/** A packet on the wire: BTH through pad, as bytes of its own. */
export type Packet = Uint8Array;

/** The fate of a packet that leaves from a local GID of a side: return the packets that arrive, and when (µs later). */
export type Fault = (
  packet: Packet,
  now: number,
  sgidIndex: number,
  from: Side,
) => { packet: Packet; delay: number }[];

/** Sees a packet as it leaves a side, before its fault, or as it comes in at one. */
export type Watch = (
  event: 'sent' | 'arrived',
  side: Side,
  packet: Packet,
  /** The side's GID that it leaves from or comes in at, and the index of the other GID at the peer. */
  gids: { own: number; peer: number },
) => void;

/** Where a peer index leads. */
interface Route {
  dgid: Uint8Array;
  sgidIndex: number;
}

export interface ElementInit {
  mr: MrCreated;
  offset?: number;
  length: number;
}

export interface WorkInit {
  wrId?: number;
  opcode: WrOpcodeName;
  sge?: ElementInit[];
  inline?: Uint8Array;
  flags?: number;
  immediate?: number;
  remote?: { addr: bigint; rkey: number };
  compareAdd?: bigint;
  swap?: bigint;
  /** UD. */
  datagram?: { ah: number; qpn: number; qkey: number };
  /** BIND_MW, with the address and the new key in `remote`. */
  bind?: { window: number; length: number; lkey: number; access: number };
  flush?: { length: number; type?: number; level?: number };
  /** XRC: number of the SRQ at the peer. */
  srqn?: number;
}

export interface QpOptions {
  type?: QpType;
  /** Handles of a shared receive queue, and of a completion queue other than the side's own. */
  srq?: number;
  cq?: number;
  recovery?: Partial<Recovery>;
  congestion?: Partial<Congestion>;
  newRing?: NewRing;
}

/** The batch of all arrivals: one, because a batch is filled and received in one step, and its memory takes time to get. */
const RX = new RxBatch(512, 4 * 1024 * 1024);

/** One adapter with one completion queue, driven by hand. */
export class Side {
  readonly adapter: Adapter;
  readonly tx: TxBatch;
  readonly rx = RX;
  readonly pd: number;
  readonly cq: Ring;
  readonly cqHandle: number;
  readonly events: AsyncEvent[] = [];
  readonly gids: readonly GidEntry[];
  /** By peer index; none where the test has its own table of peers. */
  readonly routes: Route[] = [];
  readonly doorbells: Ring;
  qp!: QpCreated;
  sq!: Ring;
  rq!: Ring;
  #backing = 1;

  constructor(name: number, seed: number, options: Partial<AdapterOptions> = {}) {
    this.gids = options.gids ?? [{ gid: gidOf(name), address: `10.0.0.${name}`, type: 'RoCE v2' }];
    this.adapter = new Adapter({
      random: createRandom(seed).next,
      peers: { add: (dgid, sgidIndex) => this.routes.push({ dgid, sgidIndex }) - 1, remove: () => {} },
      gids: this.gids,
      activeMtu: 4096,
      onCompletionEvent: () => {},
      onAsyncEvent: (event) => this.events.push(event),
      throwBugs: true,
      ...options,
    });
    this.tx = new TxBatch(this.adapter.regions, 256);
    this.pd = this.adapter.allocPd();
    const cq = this.adapter.createCq(4096);
    this.cqHandle = cq.handle;
    this.cq = new Ring(cq.ring);
    this.doorbells = new Ring(this.adapter.doorbells);
    this.createQp();
  }

  /** The queue pair that `post` and `postRecv` mean from now on. */
  createQp(cap = {}, { type = 'RC', srq, cq = this.cqHandle, ...options }: QpOptions = {}): void {
    this.qp = this.adapter.createQp({
      pd: this.pd,
      type,
      ...(srq === undefined ? {} : { srq }),
      sendCq: cq,
      recvCq: cq,
      cap: { maxSendWr: 64, maxRecvWr: 64, maxSendSge: 4, maxRecvSge: 4, maxInlineData: 128, ...cap },
      sqSigAll: false,
      ...options,
    });
    this.sq = new Ring(this.qp.sendQueue);
    this.rq = new Ring(this.qp.recvQueue);
  }

  /** A target queue pair of an XRC domain, as the one that is connected next. */
  createXrcTarget(domain: number): XrcTargetOpened {
    const target = this.adapter.createXrcTarget(domain);
    this.qp = { ...this.qp, qpn: target.qpn };
    return target;
  }

  /** Makes this the queue pair that `post` and `postRecv` mean. */
  use(qp: QpCreated): void {
    this.qp = qp;
    this.sq = new Ring(qp.sendQueue);
    this.rq = new Ring(qp.recvQueue);
  }

  register(
    buffer: ArrayBufferLike,
    access = 0xf,
    offset = 0,
    length = buffer.byteLength - offset,
  ): MrCreated {
    return this.adapter.registerMr({ pd: this.pd, backing: this.#backing++, buffer, offset, length, access });
  }

  #ring(ring: Ring, index: number, doorbell: number): void {
    ring.publish(index);
    if (!ring.wake()) return;
    const w = this.doorbells.wordOf(this.doorbells.producer);
    this.doorbells.words[w] = doorbell;
    this.doorbells.publish((this.doorbells.producer + 1) | 0);
  }

  #elements(words: Uint32Array, at: number, list: ElementInit[]): number {
    let total = 0;
    list.forEach(({ mr, offset = 0, length }, i) => {
      const address = mr.addr + BigInt(offset);
      const w = at + i * SGE_WORDS;
      words[w + Sge.ADDRESS_HIGH] = Number(address >> 32n);
      words[w + Sge.ADDRESS_LOW] = Number(address & 0xffff_ffffn);
      words[w + Sge.LENGTH] = length;
      words[w + Sge.LKEY] = mr.lkey;
      total += length;
    });
    return total;
  }

  post(work: WorkInit): void {
    const { sq } = this;
    const { words } = sq;
    const w = sq.wordOf(sq.producer);
    const flags = (work.flags ?? SendFlags.SIGNALED) | (work.inline ? SendFlags.INLINE : 0);
    words[w + SendWqe.OPCODE_FLAGS] = WrOpcode[work.opcode] | (flags << 8);
    words[w + SendWqe.WR_ID_LOW] = work.wrId ?? 0;
    words[w + SendWqe.WR_ID_HIGH] = 0;
    words[w + SendWqe.IMMEDIATE] = work.immediate ?? 0;
    words[w + SendWqe.REMOTE_ADDRESS_HIGH] = Number((work.remote?.addr ?? 0n) >> 32n);
    words[w + SendWqe.REMOTE_ADDRESS_LOW] = Number((work.remote?.addr ?? 0n) & 0xffff_ffffn);
    words[w + SendWqe.RKEY] = work.remote?.rkey ?? 0;
    words[w + SendWqe.COMPARE_ADD_HIGH] = Number((work.compareAdd ?? 0n) >> 32n);
    words[w + SendWqe.COMPARE_ADD_LOW] = Number((work.compareAdd ?? 0n) & 0xffff_ffffn);
    words[w + SendWqe.SWAP_HIGH] = Number((work.swap ?? 0n) >> 32n);
    words[w + SendWqe.SWAP_LOW] = Number((work.swap ?? 0n) & 0xffff_ffffn);
    if (work.datagram) {
      words[w + SendWqe.ADDRESS_HANDLE] = work.datagram.ah;
      words[w + SendWqe.REMOTE_QPN] = work.datagram.qpn;
      words[w + SendWqe.REMOTE_QKEY] = work.datagram.qkey;
    }
    if (work.flush) {
      words[w + SendWqe.FLUSH_LENGTH] = work.flush.length;
      words[w + SendWqe.FLUSH_TYPE] = work.flush.type ?? FlushType.GLOBAL;
      words[w + SendWqe.FLUSH_LEVEL] = work.flush.level ?? FlushLevel.RANGE;
    }
    if (work.srqn !== undefined) words[w + SendWqe.REMOTE_SRQN] = work.srqn;
    if (work.bind) {
      words[w + SendWqe.BIND_WINDOW] = work.bind.window;
      words[w + SendWqe.BIND_LENGTH_HIGH] = 0;
      words[w + SendWqe.BIND_LENGTH_LOW] = work.bind.length;
      words[w + SendWqe.BIND_LKEY] = work.bind.lkey;
      words[w + SendWqe.BIND_ACCESS] = work.bind.access;
    }
    if (work.inline) {
      words[w + SendWqe.SGE_COUNT] = 0;
      words[w + SendWqe.LENGTH] = work.inline.length;
      sq.bytes.set(work.inline, (w + SendWqe.SGE) * 4);
    } else {
      const list = work.sge ?? [];
      words[w + SendWqe.SGE_COUNT] = list.length;
      words[w + SendWqe.LENGTH] = this.#elements(words, w + SendWqe.SGE, list);
    }
    this.#ring(sq, (sq.producer + 1) | 0, this.qp.qpn);
  }

  /** Posts to the receive queue, or to the ring of an SRQ. */
  postRecv(wrId: number, list: ElementInit[], rq = this.rq): void {
    const { words } = rq;
    const w = rq.wordOf(rq.producer);
    words[w + RecvWqe.WR_ID_LOW] = wrId;
    words[w + RecvWqe.WR_ID_HIGH] = 0;
    words[w + RecvWqe.SGE_COUNT] = list.length;
    words[w + RecvWqe.LENGTH] = this.#elements(words, w + RecvWqe.SGE, list);
    this.#ring(rq, (rq.producer + 1) | 0, (this.qp.qpn | 0x8000_0000) >>> 0);
  }

  /** Takes the completions of the side's queue, or of another one. */
  poll(cq = this.cq): Completion[] {
    const found: Completion[] = [];
    let at = cq.consumer;
    for (; at !== cq.producer; at = (at + 1) | 0) {
      const w = cq.wordOf(at);
      const word = (i: number) => cq.words[w + i];
      found.push({
        wrId: word(Cqe.WR_ID_LOW),
        status: WC_STATUS_NAMES[word(Cqe.STATUS)],
        opcode: word(Cqe.OPCODE),
        byteLen: word(Cqe.BYTE_LEN),
        immediate: word(Cqe.IMMEDIATE),
        flags: word(Cqe.FLAGS),
        qpn: word(Cqe.QP_NUM),
        srcQp: word(Cqe.SRC_QP),
        sl: word(Cqe.SL),
      });
    }
    cq.release(at);
    return found;
  }
}

export interface PairOptions {
  type?: QpType;
  seed?: number;
  mtu?: number;
  attr?: Partial<QpAttr>;
  left?: Partial<AdapterOptions>;
  right?: Partial<AdapterOptions>;
  /** One way, µs. */
  latency?: number;
  psn?: [left: number, right: number];
}

/** The only way that there is. */
const DIRECT: Route = { dgid: new Uint8Array(16), sgidIndex: 0 };

const sameBytes = (a: Uint8Array, b: Uint8Array) => a.every((byte, i) => byte === b[i]);

const indexOf = ({ gids }: Side, own: Uint8Array) => gids.findIndex(({ gid }) => sameBytes(gid, own));

interface Flying {
  packet: Packet;
  source: Uint8Array;
  /** Index of the GID that it arrives at. */
  local: number;
  /** When it arrives, µs. */
  at: number;
}

/** Two connected sides. `run` moves virtual time until nothing is left to do or the time is up. */
export class Pair {
  readonly left: Side;
  readonly right: Side;
  /** Every packet in the order of sending. */
  readonly sent: { from: Side; packet: Packet; at: number }[] = [];
  fault: Fault | undefined;
  watch: Watch | undefined;
  /** The link's report on a packet: 0 if it takes it, else the errno for which it does not. */
  refuse: ((packet: Packet, from: Side) => number) | undefined;
  /** Sees each batch before its packets leave. */
  inspect: ((batch: TxBatch, from: Side) => void) | undefined;
  /** Packets that arrive together are marked as runs. */
  runs = true;
  /** Packets are added as run slots, which are unfolded before they leave. */
  runSlots = true;
  /** Where a packet comes in: a group's index instead of the address. */
  localOf: ((packet: Packet) => number) | undefined;
  #latency: number;
  /** Packets on their way to each side, in the order of their arrival. */
  readonly #toLeft: Flying[] = [];
  readonly #toRight: Flying[] = [];

  constructor(options: PairOptions = {}) {
    const { seed = 1, mtu = 1024, psn = [0x10, 0xffff_f0 & 0xff_ffff] } = options;
    this.#latency = options.latency ?? 10;
    this.left = new Side(1, seed, options.left);
    this.right = new Side(2, seed + 1, options.right);
    const { type = 'RC' } = options;
    if (type !== 'RC') for (const side of [this.left, this.right]) side.createQp({}, { type });
    this.#connect(this.left, this.right, 2, mtu, psn[0], psn[1], options.attr);
    this.#connect(this.right, this.left, 1, mtu, psn[1], psn[0], options.attr);
  }

  /** Virtual time of both sides, µs. */
  get now(): number {
    return this.left.adapter.clock[0];
  }

  set now(time: number) {
    for (const { adapter } of [this.left, this.right]) adapter.clock[0] = time;
  }

  /** Connects the queue pairs that the sides have now, if they are in RESET; the right one up to the given state. */
  connect({
    mtu = 1024,
    psn = [0x10, 0x20] as [number, number],
    attr = {} as Partial<QpAttr>,
    rightTo = 'RTS' as 'RTR' | 'RTS',
  } = {}): void {
    this.#connect(this.left, this.right, 2, mtu, psn[0], psn[1], attr);
    this.#connect(this.right, this.left, 1, mtu, psn[1], psn[0], attr, rightTo);
  }

  #connect(
    side: Side,
    peer: Side,
    name: number,
    mtu: number,
    sqPsn: number,
    rqPsn: number,
    attr: Partial<QpAttr> = {},
    last: 'RTR' | 'RTS' = 'RTS',
  ): void {
    const { adapter, qp } = side;
    const values: QpAttr = {
      pkeyIndex: 0,
      portNum: 1,
      qpAccessFlags: 0xe,
      qkey: QKEY,
      pathMtu: mtu,
      destQpNum: peer.qp.qpn,
      rqPsn,
      maxDestRdAtomic: 16,
      minRnrTimer: 12,
      ahAttr: addressOf(name),
      sqPsn,
      timeout: 14,
      retryCnt: 7,
      rnrRetry: 7,
      maxRdAtomic: 16,
      ...attr,
    };
    const { attr: was, init } = adapter.queryQp(qp.qpn);
    if (was.qpState !== 'RESET') return;
    const { type } = init;
    for (const [from, to] of [
      ['RESET', 'INIT'],
      ['INIT', 'RTR'],
      ['RTR', 'RTS'],
    ] as const) {
      const names = transition(type, from, to)!.required;
      const chosen = Object.fromEntries(names.map((n) => [n, values[n]]));
      adapter.modifyQp(qp.qpn, { qpState: to, ...chosen });
      if (to === last) return;
    }
  }

  /** Runs until `limit` µs from now at most; stops early when nothing flies and no timer runs. */
  run(limit = 1_000_000): void {
    const end = this.now + limit;
    for (;;) {
      this.#deliver(this.left);
      this.#deliver(this.right);
      for (const side of [this.left, this.right]) {
        side.adapter.advance();
        this.#transmit(side);
        side.adapter.checkInvariants();
      }
      const next = Math.min(
        this.#toLeft[0]?.at ?? Number.POSITIVE_INFINITY,
        this.#toRight[0]?.at ?? Number.POSITIVE_INFINITY,
        this.left.adapter.nextDeadline(),
        this.right.adapter.nextDeadline(),
      );
      if (next > end) {
        if (next !== Number.POSITIVE_INFINITY) this.now = end;
        return;
      }
      this.now = Math.max(this.now, next);
    }
  }

  #transmit(side: Side): void {
    const { tx } = side;
    const flying = side === this.left ? this.#toRight : this.#toLeft;
    const to = side === this.left ? this.right : this.left;
    for (;;) {
      tx.clear();
      tx.runs = this.runSlots;
      const added = side.adapter.transmit(tx);
      tx.runs = false;
      if (added === 0) return;
      unfoldRuns(tx);
      this.inspect?.(tx, side);
      for (let i = 0; i < tx.count; i++) {
        if (isMemoryGone(tx, i)) throw new Error('a packet of memory that is gone');
        const packet = gatherSlot(tx, i);
        const errno = this.refuse?.(packet, side) ?? 0;
        tx.slots[i * TX_SLOT_WORDS + Tx.STATUS] = errno;
        if (errno !== 0) continue;
        this.sent.push({ from: side, packet, at: this.now });
        const { dgid, sgidIndex } = side.routes[tx.slots[i * TX_SLOT_WORDS + Tx.PEER]] ?? DIRECT;
        const source = side.gids[sgidIndex].gid;
        const local = Math.max(0, indexOf(to, dgid));
        this.watch?.('sent', side, packet, { own: sgidIndex, peer: local });
        const arrivals = this.fault?.(packet, this.now, sgidIndex, side) ?? [{ packet, delay: 0 }];
        for (const { packet: p, delay } of arrivals) {
          const at = this.now + this.#latency + delay;
          // Behind all that arrive no later; nearly always that is the end.
          let place = flying.length;
          while (place > 0 && flying[place - 1].at > at) place--;
          flying.splice(place, 0, { packet: p, source, local, at });
        }
      }
      side.adapter.sent(tx);
    }
  }

  #deliver(side: Side): void {
    const flying = side === this.left ? this.#toLeft : this.#toRight;
    let count = 0;
    while (count < flying.length && flying[count].at <= this.now) count++;
    if (count === 0) return;
    const due = flying.splice(0, count);
    const { rx } = side;
    const from = side === this.left ? this.right : this.left;
    for (let first = 0; first < due.length; first += rx.capacity) {
      const part = due.slice(first, first + rx.capacity);
      let offset = 0;
      rx.count = part.length;
      part.forEach((f, i) => {
        this.watch?.('arrived', side, f.packet, { own: f.local, peer: indexOf(from, f.source) });
        rx.slab.set(f.packet, offset);
        const w = i * RX_SLOT_WORDS;
        rx.slots.fill(0, w, w + RX_SLOT_WORDS);
        rx.slots[w + Rx.OFFSET] = offset;
        rx.slots[w + Rx.LENGTH] = f.packet.length;
        rx.slots[w + Rx.LOCAL] = this.localOf?.(f.packet) ?? f.local;
        rx.slots[w + Rx.HOP_LIMIT] = 64;
        rx.slots[w + Rx.VERDICT] = Icrc.OK;
        rx.sources.set(f.source, i * 16);
        offset += f.packet.length;
      });
      if (this.runs) markRuns(rx);
      side.adapter.receive(rx);
    }
  }
}
