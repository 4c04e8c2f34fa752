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
  /** Groups that are being left: who joins one again waits, or the old departure would take the queue pair out. Never rejected. */
  readonly #leaving = new Map<string, Promise<void>>();

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
    const left = this.#leaving.get(name);
    const attach = () => qp.attachMcast(multicastGid(name));
    const group = before ?? { qp, ah: left ? left.then(createAh) : createAh() };
    // Before anything is awaited: what leaves all groups meanwhile leaves this one.
    this.#joined.set(name, group);
    if (!isSendOnly) group.attached ??= left ? left.then(attach) : attach();
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
    const leaving = detach(name, group);
    const left = leaving.catch(() => {}); // The caller of `leave` gets it.
    this.#leaving.set(name, left);
    void left.then(() => {
      if (this.#leaving.get(name) === left) this.#leaving.delete(name);
    });
    await leaving;
  }

  /** All of them; the queue pair may be closed. */
  async leaveAll(): Promise<void> {
    for (const name of [...this.#joined.keys()]) await this.leave(name).catch(() => {});
    await Promise.all(this.#leaving.values());
  }
}

async function detach(name: string, group: Group): Promise<void> {
  const [ah, attached] = await Promise.allSettled([group.ah, group.attached]);
  if (ah.status === 'fulfilled') await ah.value.destroy();
  if (group.attached && attached.status === 'fulfilled') await group.qp.detachMcast(multicastGid(name));
}
