/** This side's queue pairs, memory and completion queue. */
import {
  Access,
  type CompletionQueue,
  type Device,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairInit,
  RoceError,
} from '@node-roce/verbs-api';
import { gidToIpText } from '@node-roce/wire';
import type { Agreement } from '../dialogue/dialogue.ts';
import type { Key } from '../dialogue/keys.ts';
import { Endings } from '../endings.ts';
import { broken } from '../errors.ts';
import { cqesOf, type Plan, type Verb } from '../plan.ts';
import { Layout } from './layout.ts';
import { QKEY, type Side } from './requests.ts';

/** The attributes of perftest on both sides (`ctx_modify_qp_to_rtr`, `ctx_modify_qp_to_rts`). */
const RETRIES = 7;
const MIN_RNR_TIMER = 12;
const HOP_LIMIT = 255;

const ACCESS: Record<Verb, number> = {
  send: 0,
  write: Access.REMOTE_WRITE,
  read: Access.REMOTE_READ,
  atomic: Access.REMOTE_ATOMIC,
};

/** Makes a queue pair, in INIT. */
export type MakeQp = (pd: ProtectionDomain, init: Omit<QueuePairInit, 'type'>) => Promise<QueuePair>;

/** How queue pairs are made where no connection manager makes them. */
export const makeQp =
  ({ service, verb }: Plan): MakeQp =>
  async (pd, init) => {
    const qp = await pd.createQp({ ...init, type: service });
    await qp.toInit(service === 'UD' ? { qkey: QKEY } : { access: ACCESS[verb] });
    return qp;
  };

/** @throws RoceError ENOMEM in place of a RangeError */
function allocate(bytes: number, shared: boolean): Uint8Array {
  try {
    return new Uint8Array(shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes));
  } catch (cause) {
    throw new RoceError('ERR_ROCE_LIMIT', `no memory for ${bytes} bytes of messages`, {
      errno: 'ENOMEM',
      cause,
    });
  }
}

/** One side of a test: queue pairs with one completion queue, and their memory. */
export class Endpoint {
  readonly device: Device;
  readonly pd: ProtectionDomain;
  readonly cq: CompletionQueue;
  readonly mr: MemoryRegion;
  readonly layout: Layout;
  readonly sides: Side[] = [];
  readonly #plan: Plan;
  readonly #agreement: Agreement;
  readonly #endings: Endings;

  private constructor(
    parts: {
      device: Device;
      pd: ProtectionDomain;
      cq: CompletionQueue;
      mr: MemoryRegion;
      endings: Endings;
    },
    layout: Layout,
    plan: Plan,
    agreement: Agreement,
  ) {
    this.device = parts.device;
    this.pd = parts.pd;
    this.cq = parts.cq;
    this.mr = parts.mr;
    this.#endings = parts.endings;
    this.layout = layout;
    this.#plan = plan;
    this.#agreement = agreement;
  }

  /** Memory and completion queue; queue pairs are added one by one. */
  static async open(device: Device, plan: Plan, agreement: Agreement, shared: boolean): Promise<Endpoint> {
    const layout = new Layout(plan, agreement);
    const endings = new Endings();
    return endings.unless(async () => {
      const pd = await device.allocPd();
      endings.add(() => pd.dealloc());
      const cq = await device.createCq(cqesOf(plan));
      endings.add(() => cq.destroy());
      const memory = allocate(layout.bytes, shared);
      memory.subarray(0, layout.receiveOffset(0)).fill(0x5a);
      const mr = await pd.registerMr(memory, { access: Access.LOCAL_WRITE | ACCESS[plan.verb] });
      endings.add(() => mr.deregister());
      return new Endpoint({ device, pd, cq, mr, endings }, layout, plan, agreement);
    });
  }

  /** Makes a queue pair with the depths of the test. */
  makeQp(make: MakeQp): Promise<QueuePair> {
    const { txDepth, rxDepth, inline, consumesReceives } = this.#plan;
    const cap = {
      maxSendWr: txDepth + 1,
      maxRecvWr: (consumesReceives ? rxDepth : 1) + 1,
      maxSendSge: 1,
      maxRecvSge: 1,
      maxInlineData: inline,
    };
    return make(this.pd, { sendCq: this.cq, cap });
  }

  /** Adds a queue pair as the next of this side. */
  add(qp: QueuePair): Side {
    const side: Side = { qp, remote: undefined, ud: undefined };
    this.sides.push(side);
    this.#endings.add(() => side.ud?.ah.destroy());
    this.#endings.add(() => qp.close());
    return side;
  }

  /** The addresses of all queue pairs, for the peer. @param gid of this side */
  keys(gid: Uint8Array): Key[] {
    const { outReads } = this.#plan;
    return this.sides.map(({ qp }, index) => ({
      lid: 0,
      outReads,
      qpn: qp.qpNum,
      psn: qp.initialPsn,
      rkey: this.mr.rkey,
      vaddr: this.mr.iova + BigInt(this.layout.receiveOffset(index)),
      gid,
    }));
  }

  /** To RTS, each queue pair with the peer's of the same place. Without `connects`, they are connected. */
  async meet(remotes: readonly Key[], connects: boolean): Promise<void> {
    for (const [i, side] of this.sides.entries()) {
      side.remote = remotes[i];
      if (!connects) continue;
      await this.#connect(side, remotes[i]).catch((error) => {
        const { qpn, gid } = remotes[i];
        const peer = `the peer's queue pair ${qpn} at ${gidToIpText(gid)}`;
        throw broken(`${peer} can not be connected: ${(error as Error).message}`, error);
      });
    }
  }

  async #connect(side: Side, { qpn, psn, gid: bytes, outReads }: Key): Promise<void> {
    const { service, verb, trafficClass, sl, ackTimeout, outReads: own } = this.#plan;
    const gid = gidToIpText(bytes);
    if (service === 'UD') {
      const ah = await this.pd.createAh({ gid, trafficClass, sl, hopLimit: HOP_LIMIT });
      side.ud = { ah, remoteQpn: qpn, remoteQkey: QKEY };
      await side.qp.activate();
      return;
    }
    const attributes = {
      pathMtu: this.#agreement.mtu,
      access: ACCESS[verb],
      timeout: ackTimeout,
      retryCnt: RETRIES,
      rnrRetry: RETRIES,
      minRnrTimer: MIN_RNR_TIMER,
      maxRdAtomic: Math.min(outReads, own),
      maxDestRdAtomic: own,
      hopLimit: HOP_LIMIT,
      ...{ trafficClass, sl },
    };
    await side.qp.connect({ qpNum: qpn, psn, gid }, attributes);
  }

  /**
   * Changes as the test goes on: with request packets sent and executed, both for the first time, with requests done, with
   * answers, and with responses of READs. Requests that are repeated because of RNR NAKs change nothing.
   *
   * @param asks this side posts requests
   */
  async signs(asks: boolean): Promise<number> {
    // Of SENDs answers do not count: where there is no receive, rxe repeats not only the RNR NAK at each round, but also a NAK 0x60.
    const { verb, consumesReceives } = this.#plan;
    const answers = asks && !consumesReceives;
    let sum = 0;
    for (const { qp } of this.sides) {
      const { rqPsn = 0, sqPsn = 0 } = (await qp.query(['rqPsn', 'sqPsn'])).attr;
      const counters = await qp.counters();
      sum += rqPsn + sqPsn + counters.sentMessages;
      if (answers) sum += counters.receivedPackets - counters.receivedRnrErr;
      // `rqPsn` is past all responses of a READ as soon as that comes.
      if (verb === 'read') sum += counters.sentPackets - counters.retransmittedPackets - counters.sentRnrErr;
    }
    return sum;
  }

  /** Packets that the queue pairs have retransmitted; other calls on the device have queue pairs of their own. */
  async retransmittedPackets(): Promise<number> {
    const counters = await Promise.all(this.sides.map(({ qp }) => qp.counters()));
    return counters.reduce((sum, { retransmittedPackets }) => sum + retransmittedPackets, 0);
  }

  close(): Promise<void> {
    return this.#endings.run();
  }
}
