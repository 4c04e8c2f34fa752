/** Peers of sockets: another socket, and a program, request by request. */
import { CmId } from '@node-roce/rdmacm';
import { Opcode } from '@node-roce/wire';
import { type Ends, equip } from '../../rdmacm/testing/ends.ts';
import { connect, listen, type RSocket } from '../src/index.ts';
import type { BufferOptions } from '../src/parts.ts';
import { encodeConnectionData } from '../src/wire.ts';

/** Sizes of a socket that a few messages fill. */
export const SMALL = { receiveBuffer: 512, sendBuffer: 300, queue: 8, closeTimeout: 200 };

/** Two sockets that are connected; the options are for both sides. */
export async function pairOf(
  ends: Ends,
  options: object = SMALL,
): Promise<[client: RSocket, server: RSocket]> {
  await using server = await listen({ device: ends.b, port: 0, ...options });
  const connecting = connect({ device: ends.a, host: '10.0.0.2', port: server.port, ...options });
  const accepted = await server.accept();
  return [await connecting, accepted];
}

/** From now on, no acknowledgement to the second device arrives. */
export function dropAcks({ network }: Ends): void {
  const deliver = network.deliver.bind(network);
  network.deliver = (packet, destination) => {
    // 10.0.0.2
    if (packet.bytes[0] !== Opcode.RC_ACKNOWLEDGE || destination[15] !== 2) deliver(packet, destination);
  };
}

/** How a program connects; the rest are options of the listener. */
interface ProgramOptions extends BufferOptions {
  /** Receives that the program posts, default 16: what comes beyond is not acknowledged. */
  most?: number;
  /** As a socket of node-roce, instead of one in C. */
  announcesEnds?: boolean;
}

/** A program that has connected to a listener as an rsocket, and the listener's socket. */
export async function programOf(ends: Ends, options: ProgramOptions = {}) {
  const { most = 16, announcesEnds = false, ...sizes } = options;
  await using server = await listen({ device: ends.b, port: 7, ...SMALL, ...sizes });
  const id = new CmId({ device: ends.a });
  await id.resolveAddr({ host: '10.0.0.2', port: 7 });
  await id.resolveRoute();
  const { qp, mr } = await equip(id as never, { cap: { maxRecvWr: 64 } });
  const receives = Array.from({ length: most }, () => qp.receive([]));
  for (const receive of receives) receive.catch(() => {});
  const own = { addr: mr.addr, key: mr.rkey, length: 2 };
  const buffer = { ...own, length: 1000 };
  const data = { isBigEndian: false, credits: 8, sgl: own, buffer, announcesEnds };
  const privateData = encodeConnectionData(data);
  await id.connect({ privateData, responderResources: 0, initiatorDepth: 0 });
  return { id, qp, receives, socket: await server.accept() };
}
