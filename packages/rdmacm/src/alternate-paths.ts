/** Alternate paths of a connection: proposes one to the peer and loads it, and loads those that the peer proposes. */
import type { AlternatePath } from '@node-roce/cm';
import { type QpAttr, type QueuePair, RoceError, type XrcTarget } from '@node-roce/verbs-api';
import { addressVector } from '@node-roce/verbs-api/parts';
import { CmAprStatus } from '@node-roce/wire';
import type { Endpoint } from './endpoint.ts';
import { refusedPathError } from './errors.ts';

/** The attributes of a queue pair with that path. */
const attributesOf = ({ route, ackTimeout }: AlternatePath): QpAttr => ({
  altAhAttr: addressVector(route),
  altPkeyIndex: 0,
  altPortNum: 1,
  altTimeout: ackTimeout,
});

/** A connection that is made. */
interface Connected {
  endpoint: Endpoint;
  /** Of the connection. */
  number: number;
  end: QueuePair | XrcTarget;
}

/** The alternate paths of one id. */
export class AlternatePaths {
  /** Takes the answer to our proposal. */
  #waiting: { resolve(status: number | undefined): void; reject(reason: unknown): void } | undefined;

  /**
   * Loads a path here and at the peer: REARM on both sides. Rejects with `RefusedError` where the peer does not take it, and with
   * ERR_ROCE_CM_UNREACHABLE where it does not answer; then the queue pair is not armed.
   */
  async load({ endpoint, number, end }: Connected, path: AlternatePath): Promise<void> {
    if (this.#waiting)
      throw new RoceError('ERR_ROCE_CM_STATE', 'another path is being loaded', { errno: 'EBUSY' });
    let status: number | undefined;
    const answer = new Promise<number | undefined>((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
    answer.catch(() => {}); // Where the device refuses the path, nobody waits for it.
    try {
      // A path that the device refuses is not proposed.
      await end.modify(attributesOf(path));
      await endpoint.call('cmLoadPath', number, path);
      status = await answer;
    } finally {
      this.#waiting = undefined;
    }
    if (status !== CmAprStatus.SUCCESS) throw refusedPathError(path, status);
    await end.modify({ pathMigState: 'REARM' });
  }

  /** The peer's answer; undefined where there is none. */
  answered(status: number | undefined): void {
    this.#waiting?.resolve(status);
  }

  /** The peer proposes a path. */
  async offered({ endpoint, number, end }: Connected, path: AlternatePath): Promise<void> {
    let status: number = CmAprStatus.SUCCESS;
    try {
      await end.modify({ ...attributesOf(path), pathMigState: 'REARM' });
    } catch {
      status = CmAprStatus.REJECTED;
    }
    await endpoint.call('cmAnswerPath', number, status).catch(() => {}); // The connection may have ended meanwhile.
  }

  /** The connection has ended. */
  end(reason: unknown): void {
    this.#waiting?.reject(reason);
  }
}
