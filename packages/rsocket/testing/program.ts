/** A program that is the peer of a socket, request by request. */
import { CmId } from '@node-roce/rdmacm';
import { type Ends, equip } from '../../rdmacm/testing/ends.ts';
import { listen } from '../src/index.ts';
import { encodeConnectionData } from '../src/wire.ts';

/** Sizes of a socket that a few messages fill. */
export const SMALL = { receiveBuffer: 512, sendBuffer: 300, queue: 8, closeTimeout: 200 };

/**
 * A program that has connected to a listener as an rsocket, and the listener's socket.
 *
 * @param most receives that the program posts: what comes beyond is not acknowledged
 */
export async function programOf(ends: Ends, most = 16) {
  await using server = await listen({ device: ends.b, port: 7, ...SMALL });
  const id = new CmId({ device: ends.a });
  await id.resolveAddr({ host: '10.0.0.2', port: 7 });
  await id.resolveRoute();
  const { qp, mr } = await equip(id as never, { cap: { maxRecvWr: 64 } });
  const receives = Array.from({ length: most }, () => qp.receive([]));
  for (const receive of receives) receive.catch(() => {});
  const own = { addr: mr.addr, key: mr.rkey, length: 2 };
  const buffer = { ...own, length: 1000 };
  const privateData = encodeConnectionData({ isBigEndian: false, credits: 8, sgl: own, buffer });
  await id.connect({ privateData, responderResources: 0, initiatorDepth: 0 });
  return { id, qp, receives, socket: await server.accept() };
}
