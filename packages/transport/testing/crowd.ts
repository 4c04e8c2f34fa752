/** Many connected queue pairs between two adapters, in virtual time, over a link that takes so many packets a millisecond. */
import {
  Icrc,
  type MrCreated,
  type QpAttr,
  type QpCreated,
  RX_SLOT_WORDS,
  Rx,
  RxBatch,
  TX_SLOT_WORDS,
  Tx,
  TxBatch,
} from '../src/index.ts';
import { addressOf, gidOf, Side, type WorkInit } from './pair.ts';

export interface CrowdOptions {
  /** Queue pairs of each side. */
  count: number;
  /** `timeout` of the left queue pairs, and of the right ones (14 unless given). */
  timeout: number;
  rightTimeout?: number;
  /** Bytes of the right's receive buffer: how much it READs at once. */
  rightBuffer?: number;
  /** Packets that the link takes from the left in a millisecond; none of the right's wait. */
  packetsPerMillisecond?: number;
  mtu?: number;
  /** Bytes of the regions. */
  memory?: number;
}

/**
 * One step is a millisecond. Packets that the left side gives to the link in one step arrive in the next; so the round
 * trip is two steps.
 */
export class Crowd {
  readonly left = new Side(1, 1);
  readonly right: Side;
  readonly lefts: QpCreated[] = [];
  readonly rights: QpCreated[] = [];
  readonly local: MrCreated;
  readonly remote: MrCreated;
  /** Steps done. */
  steps = 0;
  /** Called with each batch of the left, before the link has it. */
  onBatch: ((batch: TxBatch) => void) | undefined;
  #onTheWay = false;
  readonly #tx: TxBatch;
  readonly #replies: TxBatch;
  readonly #toRight: RxBatch;
  readonly #toLeft = new RxBatch(8192, 4 * 1024 * 1024);

  constructor(options: CrowdOptions) {
    const { count, timeout, rightTimeout = 14, rightBuffer } = options;
    const { packetsPerMillisecond = 256, mtu = 256, memory = 1 << 18 } = options;
    this.right = new Side(2, 2, rightBuffer === undefined ? {} : { receiveBuffer: rightBuffer });
    for (let i = 0; i < count; i++) {
      this.left.createQp({ maxSendWr: 4, maxRecvWr: 4 });
      this.lefts.push(this.left.qp);
      this.right.createQp({ maxSendWr: 4, maxRecvWr: 4 });
      this.rights.push(this.right.qp);
    }
    for (let i = 0; i < count; i++) {
      this.#connect(this.left, this.lefts[i], this.rights[i], 2, { timeout, pathMtu: mtu });
      this.#connect(this.right, this.rights[i], this.lefts[i], 1, {
        timeout: rightTimeout,
        pathMtu: mtu,
      });
    }
    this.local = this.left.register(new ArrayBuffer(memory));
    this.remote = this.right.register(new ArrayBuffer(memory));
    this.#tx = new TxBatch(this.left.adapter.regions, packetsPerMillisecond);
    this.#replies = new TxBatch(this.right.adapter.regions, 256);
    this.#toRight = new RxBatch(packetsPerMillisecond, packetsPerMillisecond * 4608);
  }

  /** Virtual time, µs. */
  get now(): number {
    return this.steps * 1000;
  }

  #connect({ adapter }: Side, { qpn }: QpCreated, peer: QpCreated, name: number, attr: QpAttr): void {
    const { timeout = 14, ...path } = attr;
    adapter.modifyQp(qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags: 0xe });
    adapter.modifyQp(qpn, {
      qpState: 'RTR',
      ahAttr: addressOf(name),
      destQpNum: peer.qpn,
      rqPsn: 0,
      maxDestRdAtomic: 4,
      minRnrTimer: 12,
      ...path,
    });
    adapter.modifyQp(qpn, { qpState: 'RTS', sqPsn: 0, timeout, retryCnt: 7, rnrRetry: 7, maxRdAtomic: 4 });
  }

  /** Posts to queue pair `i` of the left. */
  post(i: number, work: WorkInit): void {
    this.left.use(this.lefts[i]);
    this.left.post(work);
  }

  /** A millisecond, for both sides. */
  step(): void {
    const { left, right, now } = this;
    left.adapter.clock[0] = right.adapter.clock[0] = now;
    if (this.#onTheWay) {
      this.#onTheWay = false;
      left.adapter.sent(this.#tx);
      carry(this.#tx, this.#toRight, 1);
    }
    if (this.#toLeft.count > 0) {
      left.adapter.receive(this.#toLeft);
      this.#toLeft.count = 0;
    }
    if (this.#toRight.count > 0) {
      right.adapter.receive(this.#toRight);
      this.#toRight.count = 0;
    }
    left.adapter.advance();
    right.adapter.advance();
    this.#tx.clear();
    if (left.adapter.transmit(this.#tx) > 0) {
      this.#onTheWay = true;
      this.onBatch?.(this.#tx);
    }
    for (;;) {
      this.#replies.clear();
      if (right.adapter.transmit(this.#replies) === 0) break;
      carry(this.#replies, this.#toLeft, 2);
      right.adapter.sent(this.#replies);
    }
    this.steps++;
  }
}

/** Appends the packets of a batch to those that the other side receives: headers as they are, and payload that nobody looks at. */
function carry(tx: TxBatch, rx: RxBatch, from: number): void {
  const { slots, headers } = tx;
  const source = gidOf(from);
  let at = rx.count === 0 ? 0 : endOf(rx);
  for (let i = 0; i < tx.count; i++) {
    const w = i * TX_SLOT_WORDS;
    const start = slots[w + Tx.HEADER_OFFSET];
    const headerLength = slots[w + Tx.HEADER_LENGTH];
    const length = headerLength + slots[w + Tx.PAYLOAD_LENGTH] + slots[w + Tx.PAD];
    for (let k = 0; k < headerLength; k++) rx.slab[at + k] = headers[start + k];
    const r = rx.count * RX_SLOT_WORDS;
    rx.slots[r + Rx.OFFSET] = at;
    rx.slots[r + Rx.LENGTH] = length;
    rx.slots[r + Rx.LOCAL] = 0;
    rx.slots[r + Rx.HOP_LIMIT] = 64;
    rx.slots[r + Rx.VERDICT] = Icrc.OK;
    rx.sources.set(source, rx.count * 16);
    rx.count++;
    at += length;
  }
}

function endOf(rx: RxBatch): number {
  const r = (rx.count - 1) * RX_SLOT_WORDS;
  return rx.slots[r + Rx.OFFSET] + rx.slots[r + Rx.LENGTH];
}
