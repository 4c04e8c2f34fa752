/** Multicast groups of an id. */
import type { QueuePair } from '@node-roce/verbs-api';
import { multicastGid } from '@node-roce/wire';

/** The groups that a queue pair takes part in. */
export class Groups {
  readonly #joined = new Set<string>();

  async join(qp: QueuePair, group: string): Promise<void> {
    await qp.attachMcast(multicastGid(group));
    this.#joined.add(group);
  }

  async leave(qp: QueuePair, group: string): Promise<void> {
    await qp.detachMcast(multicastGid(group));
    this.#joined.delete(group);
  }

  /** All of them; the queue pair may be closed. */
  async leaveAll(qp: QueuePair | undefined): Promise<void> {
    if (qp) for (const group of this.#joined) await this.leave(qp, group).catch(() => {});
  }
}
