/** Multicast groups of an id. */
import type { AddressHandle, QueuePair } from '@node-roce/verbs-api';
import { multicastGid } from '@node-roce/wire';

interface Group {
  qp: QueuePair;
  ah: Promise<AddressHandle>;
  /** Undefined where the queue pair only sends to the group. */
  attached?: Promise<void>;
}

/** The groups that a queue pair takes part in, each with the address handle towards it. */
export class Groups {
  readonly #joined = new Map<string, Group>();

  has(name: string): boolean {
    return this.#joined.has(name);
  }

  /** Joins a group, and returns the way to it: the same one where it was joined before. */
  async join(
    qp: QueuePair,
    name: string,
    isSendOnly: boolean,
    createAh: () => Promise<AddressHandle>,
  ): Promise<AddressHandle> {
    const before = this.#joined.get(name);
    const group = before ?? { qp, ah: createAh() };
    // Before anything is awaited: what leaves all groups meanwhile leaves this one.
    this.#joined.set(name, group);
    if (!isSendOnly) group.attached ??= qp.attachMcast(multicastGid(name));
    try {
      const [ah] = await Promise.all([group.ah, group.attached]);
      return ah;
    } catch (error) {
      if (before) delete group.attached;
      else await this.leave(name);
      throw error;
    }
  }

  async leave(name: string): Promise<void> {
    const group = this.#joined.get(name);
    if (!group) return;
    this.#joined.delete(name);
    const [ah, attached] = await Promise.allSettled([group.ah, group.attached]);
    if (ah.status === 'fulfilled') await ah.value.destroy();
    if (group.attached && attached.status === 'fulfilled') await group.qp.detachMcast(multicastGid(name));
  }

  /** All of them; the queue pair may be closed. */
  async leaveAll(): Promise<void> {
    for (const name of [...this.#joined.keys()]) await this.leave(name).catch(() => {});
  }
}
