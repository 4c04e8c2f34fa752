/** Raw packet queue pairs by number: what the control path and the run loop do with them. */
import type { Context } from '../context.ts';
import type { QpCreated } from '../control.ts';
import { addCounters, type QpCounters } from '../counters.ts';
import { RoceError } from '../errors.ts';
import type { FrameHost } from './frames.ts';
import { RawQueuePair, type RawQueuePairInit } from './raw-queue-pair.ts';

/** The raw packet queue pairs of an adapter, by number. */
export class RawTable {
  readonly #context: Context;
  readonly #host: FrameHost | undefined;
  readonly #qps = new Map<number, RawQueuePair>();

  /** @param host opens ports on the interface; undefined where the link has none */
  constructor(context: Context, host: FrameHost | undefined) {
    this.#context = context;
    this.#host = host;
  }

  get size(): number {
    return this.#qps.size;
  }

  find(qpn: number): RawQueuePair | undefined {
    return this.#qps.get(qpn);
  }

  queuePairs(): Iterable<RawQueuePair> {
    return this.#qps.values();
  }

  /** ibv_create_qp(3); the attributes are checked. Throws EOPNOTSUPP where the link has no frames, EPERM without CAP_NET_RAW. */
  create(init: Omit<RawQueuePairInit, 'port' | 'frames'>): QpCreated {
    const host = this.#host;
    if (host === undefined) {
      throw new RoceError('ERR_ROCE_NOT_SUPPORTED', 'type: the link has no frames of an interface', {
        errno: 'EOPNOTSUPP',
        attribute: 'type',
        expected: 'the udp link for RAW_PACKET',
      });
    }
    const port = host.open();
    let qp: RawQueuePair;
    try {
      qp = new RawQueuePair(this.#context, { ...init, port, frames: host.batch });
    } catch (error) {
      port.close();
      throw error;
    }
    this.#qps.set(qp.qpn, qp);
    return { qpn: qp.qpn, cap: { ...qp.cap }, sendQueue: qp.sq.shape, recvQueue: qp.rq.shape };
  }

  /** ibv_destroy_qp(3). @param retired gets its counts */
  destroy(qp: RawQueuePair, retired: QpCounters): void {
    qp.destroy();
    addCounters(retired, qp.counters);
    this.#qps.delete(qp.qpn);
  }

  /** Closes the ports: the adapter is at its end. */
  close(): void {
    for (const qp of this.#qps.values()) qp.close();
    this.#qps.clear();
  }

  /** Sends frames while there is room, and takes in those that have come. */
  run(): void {
    for (const qp of this.#qps.values()) qp.run();
  }
}
