/** A reliable queue pair on an express host: requests and receives written into its rings, completions read from them. */
import type { ConnectionOptions } from '@node-roce/sim';
import {
  Cqe,
  DOORBELL_RECV,
  type MrCreated,
  QP_STATES,
  RecvWqe,
  Ring,
  SendFlags,
  SendWqe,
  Sge,
  WC_STATUS_NAMES,
  WrOpcode,
} from '@node-roce/transport';
import type { ExpressHost } from './express.ts';

export interface ExpressQpOptions {
  depth: number;
  psn: number;
}

/** Where a request's bytes are, or go: a region and an offset in it. */
export interface Place {
  mr: MrCreated;
  offset: number;
}

/** A queue pair of an express device, with its posted and completed messages. */
export class ExpressQp {
  readonly qpn: number;
  readonly psn: number;
  readonly #host: ExpressHost;
  readonly #send: Ring;
  readonly #receive: Ring;
  readonly #sendCq: Ring;
  readonly #receiveCq: Ring;

  constructor(host: ExpressHost, { depth, psn }: ExpressQpOptions) {
    this.#host = host;
    this.psn = psn;
    const { adapter, pd } = host;
    const [sendCq, recvCq] = [adapter.createCq(2 * depth), adapter.createCq(2 * depth)];
    const cap = { maxSendWr: depth, maxRecvWr: depth, maxSendSge: 1, maxRecvSge: 1, maxInlineData: 0 };
    const cqs = { sendCq: sendCq.handle, recvCq: recvCq.handle };
    const created = adapter.createQp({ pd, type: 'RC', ...cqs, cap, sqSigAll: false });
    this.qpn = created.qpn;
    this.#send = new Ring(created.sendQueue);
    this.#receive = new Ring(created.recvQueue);
    this.#sendCq = new Ring(sendCq.ring);
    this.#receiveCq = new Ring(recvCq.ring);
  }

  connect(peer: ExpressQp, options: ConnectionOptions): void {
    const { adapter } = this.#host;
    const grh = { dgid: peer.#host.gid, flowLabel: 0, sgidIndex: 0, hopLimit: 64, trafficClass: 0 };
    const ahAttr = { grh, isGlobal: true, dlid: 0, sl: 0, srcPathBits: 0, staticRate: 0, portNum: 1 };
    const { qpAccessFlags, maxDestRdAtomic, minRnrTimer, pathMtu } = options;
    const { timeout, retryCnt, rnrRetry, maxRdAtomic } = options;
    adapter.modifyQp(this.qpn, { qpState: 'INIT', pkeyIndex: 0, portNum: 1, qpAccessFlags });
    const way = { ahAttr, pathMtu, destQpNum: peer.qpn, rqPsn: peer.psn, maxDestRdAtomic, minRnrTimer };
    adapter.modifyQp(this.qpn, { qpState: 'RTR', ...way });
    const retries = { timeout, retryCnt, rnrRetry, maxRdAtomic };
    adapter.modifyQp(this.qpn, { qpState: 'RTS', sqPsn: this.psn, ...retries });
  }

  get state(): string {
    return QP_STATES[this.#send.state];
  }

  /** @param wrId 32 bits @param add operand of a fetch-and-add, 32 bits */
  post(
    opcode: keyof typeof WrOpcode,
    wrId: number,
    local: Place,
    length: number,
    remote: Place | undefined,
    signaled: boolean,
    add = 0,
  ): void {
    const ring = this.#send;
    const { words } = ring;
    const index = ring.producer;
    const w = ring.wordOf(index);
    words[w + SendWqe.OPCODE_FLAGS] = WrOpcode[opcode] | ((signaled ? SendFlags.SIGNALED : 0) << 8);
    words[w + SendWqe.WR_ID_LOW] = wrId;
    words[w + SendWqe.WR_ID_HIGH] = 0;
    words[w + SendWqe.SGE_COUNT] = 1;
    words[w + SendWqe.LENGTH] = length;
    if (remote !== undefined) {
      writeAddress(words, w + SendWqe.REMOTE_ADDRESS_HIGH, remote.mr.iova, remote.offset);
      words[w + SendWqe.RKEY] = remote.mr.rkey;
      words[w + SendWqe.COMPARE_ADD_HIGH] = 0;
      words[w + SendWqe.COMPARE_ADD_LOW] = add;
    }
    writeElement(words, w + SendWqe.SGE, local, length);
    ring.publish((index + 1) | 0);
    if (ring.wake()) this.#host.ringDoorbell(this.qpn);
  }

  postReceive(wrId: number, place: Place, length: number): void {
    const ring = this.#receive;
    const index = ring.producer;
    const w = ring.wordOf(index);
    ring.words[w + RecvWqe.WR_ID_LOW] = wrId;
    ring.words[w + RecvWqe.WR_ID_HIGH] = 0;
    ring.words[w + RecvWqe.SGE_COUNT] = 1;
    ring.words[w + RecvWqe.LENGTH] = length;
    writeElement(ring.words, w + RecvWqe.SGE, place, length);
    ring.publish((index + 1) | 0);
    if (ring.wake()) this.#host.ringDoorbell((this.qpn | DOORBELL_RECV) >>> 0);
  }

  /** Calls back with the number of each request that is done. @throws Error for one that failed */
  pollSend(done: (wrId: number) => void): void {
    poll(this.#sendCq, done);
  }

  /** Same for receives, with the bytes of the message. */
  pollReceive(done: (wrId: number, byteLen: number) => void): void {
    poll(this.#receiveCq, done);
  }
}

/** An address as two words: regions begin so that an offset never carries. */
function writeAddress(words: Uint32Array, w: number, base: bigint, offset: number): void {
  const address = base + BigInt(offset);
  words[w] = Number(address >> 32n);
  words[w + 1] = Number(address & 0xffff_ffffn);
}

function writeElement(words: Uint32Array, w: number, { mr, offset }: Place, length: number): void {
  writeAddress(words, w + Sge.ADDRESS_HIGH, mr.addr, offset);
  words[w + Sge.LENGTH] = length;
  words[w + Sge.LKEY] = mr.lkey;
}

function poll(ring: Ring, done: (wrId: number, byteLen: number) => void): void {
  const { words, producer } = ring;
  let index = ring.consumer;
  if (index === producer) return;
  for (; index !== producer; index = (index + 1) | 0) {
    const w = ring.wordOf(index);
    const status = words[w + Cqe.STATUS];
    if (status !== 0)
      throw new Error(`request ${words[w + Cqe.WR_ID_LOW]} ended with ${WC_STATUS_NAMES[status]}`);
    done(words[w + Cqe.WR_ID_LOW], words[w + Cqe.BYTE_LEN]);
  }
  ring.release(index);
}
