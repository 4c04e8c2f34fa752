/** This side's queue pairs, memory and completion queue. */
import {
  Access,
  type CompletionQueue,
  type Device,
  type MemoryRegion,
  type ProtectionDomain,
  type QueuePair,
  type QueuePairInit,
} from '@node-roce/verbs-api';
import { gidToIpText } from '@node-roce/wire';
import type { Agreement } from '../dialogue/dialogue.ts';
import type { Key } from '../dialogue/keys.ts';
import { broken } from '../errors.ts';
import type { Plan, Service, Verb } from '../plan.ts';
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
    const qp = await pd.createQp({ ...init, type: service satisfies Service });
    await qp.toInit(service === 'UD' ? { qkey: QKEY } : { access: ACCESS[verb] });
    return qp;
  };

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

  private constructor(
    parts: { device: Device; pd: ProtectionDomain; cq: CompletionQueue; mr: MemoryRegion },
    layout: Layout,
    plan: Plan,
    agreement: Agreement,
  ) {
    this.device = parts.device;
    this.pd = parts.pd;
    this.cq = parts.cq;
    this.mr = parts.mr;
    this.layout = layout;
    this.#plan = plan;
    this.#agreement = agreement;
  }

  /** Memory and completion queue; queue pairs are added one by one. */
  static async open(device: Device, plan: Plan, agreement: Agreement, shared: boolean): Promise<Endpoint> {
    const layout = new Layout(plan, agreement);
    const pd = await device.allocPd();
    const receives = plan.consumesReceives ? plan.rxDepth : 1;
    const cq = await device.createCq((plan.txDepth + receives + 2) * plan.qps);
    const { bytes } = layout;
    const memory = new Uint8Array(shared ? new SharedArrayBuffer(bytes) : new ArrayBuffer(bytes));
    memory.subarray(0, layout.receiveOffset(0)).fill(0x5a);
    const mr = await pd.registerMr(memory, { access: Access.LOCAL_WRITE | ACCESS[plan.verb] });
    return new Endpoint({ device, pd, cq, mr }, layout, plan, agreement);
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

  async close(): Promise<void> {
    for (const { qp, ud } of this.sides) {
      await qp.close();
      await ud?.ah.destroy();
    }
    await this.cq.destroy();
    await this.mr.deregister();
    await this.pd.dealloc();
  }
}
