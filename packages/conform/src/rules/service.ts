/** A service behind the connection manager; some rules count on what that of `rping -s` does. */
import { AethKind, aethKind, type CmFields } from '@node-roce/wire';
import type { Case } from '../case.ts';
import type { CmSession } from '../cm-session.ts';
import type { Entry } from '../line.ts';

/** An ACK; or an RNR NAK of a service that has no receive. */
export const isTaken = ({ packet }: Entry): boolean => {
  const syndrome = packet?.info.key === 'RC_ACKNOWLEDGE' ? packet.extensions.aeth?.syndrome : undefined;
  return syndrome !== undefined && aethKind(syndrome) !== AethKind.NAK;
};

export const BUFFER = { va: 0x10_0000n, rkey: 0x55 } as const;
export const MTU = 1024;
/** Bytes that rping has without `-S`: one packet; and a READ of four. */
export const LENGTHS = { usual: 64, long: 4 * MTU } as const;

/** The message by which rping's client names its buffer: the server READs it. */
function rpingBuffer(length: number): Uint8Array {
  const message = new Uint8Array(16);
  const view = new DataView(message.buffer);
  view.setBigUint64(0, BUFFER.va);
  view.setUint32(8, BUFFER.rkey);
  view.setUint32(12, length);
  return message;
}

export const isRead = ({ packet }: Entry): boolean => packet?.info.isReadRequest === true;
export const isSend = ({ packet }: Entry): boolean => packet?.info.isSend === true;

/** Makes the service READ, as rping's does. */
export async function itsRead(
  c: CmSession,
  t: Case,
  length: number,
  changes?: Partial<CmFields<'REQ'>>,
): Promise<Entry | undefined> {
  if ((await c.established(changes)) === undefined) return undefined;
  c.send('RC_SEND_ONLY', 0, { payload: rpingBuffer(length) });
  const taken = await c.packet((entry) => isTaken(entry) && c.at(entry) === 0);
  if (!t.want(taken !== undefined, 'a SEND with the PSN that REP asks for is not taken')) return undefined;
  const read = await c.packet(isRead, t.waits.patience);
  return read ?? t.skip('the service does not READ what a client of rping offers');
}
