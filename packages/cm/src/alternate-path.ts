/** Loading alternate paths for a connection (IBTA vol 1 §12.8): one side's LAP, the other side's APR. */
import { CmAprStatus, type CmInput, type CmMessage, encodeCm, gidEquals } from '@node-roce/wire';
import { PERMISSIVE_LID } from './messages.ts';
import type { AlternatePath, Route } from './parameters.ts';

/** The ids that messages of a connection carry. */
interface CommIds {
  localCommId: number;
  remoteCommId: number;
}

/** The peer's LAP, with our answer once there is one. */
interface Offered {
  transactionId: bigint;
  route: Route;
  response: Uint8Array | undefined;
}

/**
 * Alternate paths of one connection. Promise: each LAP of ours has a transaction id of its own, and each of the peer's is shown to the
 * program once, whatever copies come.
 */
export class AlternatePaths {
  #count = 0;
  #asked: { transactionId: bigint; route: Route } | undefined;
  #offered: Offered | undefined;
  /** The path that both sides have loaded last, until they go over to it. */
  #loaded: Route | undefined;

  /** Our LAP. @param localGid the near end of the path */
  request(
    { route, ackTimeout }: AlternatePath,
    localGid: Uint8Array,
    ids: CommIds & { remoteQpn: number; remoteCmResponseTimeout: number; ownTransactionId: bigint },
  ): CmInput<'LAP'> {
    const { ownTransactionId, ...fields } = ids;
    this.#count++;
    const transactionId = BigInt.asUintN(64, ownTransactionId + (BigInt(this.#count) << 56n));
    this.#asked = { transactionId, route };
    return {
      name: 'LAP',
      transactionId,
      ...fields,
      alternateLocalLid: PERMISSIVE_LID,
      alternateRemoteLid: PERMISSIVE_LID,
      alternateLocalGid: localGid,
      alternateRemoteGid: route.gid,
      alternateFlowLabel: route.flowLabel,
      alternateTrafficClass: route.trafficClass,
      alternateHopLimit: route.hopLimit,
      alternateAckTimeout: ackTimeout,
    };
  }

  /** An APR came. @returns whether it answers our LAP */
  answered({ transactionId, status }: CmMessage<'APR'>): boolean {
    const asked = this.#asked;
    if (asked?.transactionId !== transactionId) return false;
    this.#asked = undefined;
    if (status === CmAprStatus.SUCCESS) this.#loaded = asked.route;
    return true;
  }

  /** No answer to our LAP is awaited any more. */
  giveUp(): void {
    this.#asked = undefined;
  }

  /** A LAP came. @returns `new`, the answer to a copy of the last one, or undefined for a copy that the program has not answered */
  offer({ transactionId }: CmMessage<'LAP'>, route: Route): 'new' | Uint8Array | undefined {
    if (this.#offered?.transactionId === transactionId) return this.#offered.response;
    this.#offered = { transactionId, route, response: undefined };
    return 'new';
  }

  /** Our APR to the peer's LAP; undefined where none waits for it. */
  answer(status: number, ids: CommIds): Uint8Array | undefined {
    const offered = this.#offered;
    if (offered === undefined || offered.response !== undefined) return undefined;
    offered.response = encodeCm({ name: 'APR', transactionId: offered.transactionId, ...ids, status });
    if (status === CmAprStatus.SUCCESS) this.#loaded = offered.route;
    return offered.response;
  }

  /** The connection went over to the path that was loaded, which is returned. */
  migrated(): Route | undefined {
    const loaded = this.#loaded;
    this.#loaded = undefined;
    return loaded;
  }
}

/**
 * Returns the status that refuses a LAP before the program sees it.
 *
 * @param isOurQpn the LAP names the queue pair of the connection
 * @param route the path that it offers; undefined where the near end is no address of ours
 * @param current the path of the connection
 */
export function pathRefusal(isOurQpn: boolean, route: Route | undefined, current: Route): number | undefined {
  if (!isOurQpn) return CmAprStatus.INVALID_QPN;
  if (route === undefined) return CmAprStatus.INVALID_GID;
  const isCurrent = route.sgidIndex === current.sgidIndex && gidEquals(route.gid, current.gid);
  return isCurrent ? CmAprStatus.IS_CURRENT : undefined;
}
