/** Connects to a host within a time limit, by each of its addresses until one answers. */
import type { Device } from '@node-roce/verbs-api';
import { isIpv4Mapped } from '@node-roce/wire';
import { gidOf, isAnyAddress, resolveAll, type SocketAddress } from './addresses.ts';
import { orAborted } from './attempt.ts';
import { Deadline } from './deadline.ts';
import { connectTimeoutError } from './errors.ts';
import { firstOf, inTurns } from './eyeballs.ts';

const CONNECT_TIMEOUT = 10_000;

/** Where from, and how long. */
interface Limits {
  source?: string | undefined;
  device?: Device | undefined;
  /** Milliseconds for all of it; 0 for no limit. Default 10,000. */
  connectTimeout?: number | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * The first connection that an attempt makes (RFC 8305). Rejects as the attempts do, with ERR_ROCE_CM_UNREACHABLE after `connectTimeout`, or with the
 * signal's reason.
 *
 * @param to a name or a numeric address
 * @param attempt rejects with the reason of its signal, and then leaves nothing
 * @param discard ends a connection that came too late; never rejects
 */
export async function reach<T>(
  to: SocketAddress,
  { source, device, connectTimeout = CONNECT_TIMEOUT, signal: given }: Limits,
  attempt: (place: SocketAddress, signal: AbortSignal) => Promise<T>,
  discard: (late: T) => Promise<void>,
): Promise<T> {
  given?.throwIfAborted();
  const { address: host, port } = to;
  const deadline = new Deadline(connectTimeout, given, () => connectTimeoutError(to, connectTimeout));
  const { signal } = deadline;
  try {
    const addresses = await orAborted(addressesOf(host, source, device), signal);
    return await firstOf(
      host,
      addresses,
      (address, ownSignal) => attempt({ address, port }, ownSignal),
      (late) => void discard(late),
      signal,
    );
  } finally {
    deadline.end();
  }
}

/** Addresses of a host that ours can reach; all, where none can. */
async function addressesOf(host: string, source: string | undefined, device: Device | undefined) {
  const all = await resolveAll(host);
  const own =
    source !== undefined && !isAnyAddress(source) ? [gidOf(source)] : device?.gids.map(({ gid }) => gid);
  const reachable =
    own && all.filter((each) => own.some((gid) => isIpv4Mapped(gid) === isIpv4Mapped(gidOf(each))));
  return inTurns(reachable?.length ? reachable : all);
}
