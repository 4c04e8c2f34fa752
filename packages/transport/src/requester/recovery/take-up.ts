/** Where the cursor goes on after it had gone back in vain: what it went back to is acknowledged by now. */
import { psnAdd, psnDiff } from '@node-roce/wire';
import { Wire } from '../../wr-opcodes.ts';
import type { RequesterParts } from '../parts.ts';

type Parts = Pick<RequesterParts, 'owner' | 'flight' | 'reads'>;

/** It goes on from the oldest packet that is not acknowledged. */
export function catchUp({ owner, reads, flight }: Parts): void {
  reads.release();
  flight.seekUnacked(owner.attributes.pathMtu);
}

/** The packets behind those are on their way as well: it goes to the end. */
export function takeUp(parts: Parts): void {
  catchUp(parts);
  const { owner, reads, flight } = parts;
  const { queue, cursor, sendPsn } = flight;
  while (psnDiff(sendPsn, cursor.psn) > 0) {
    const { psn, entry, packet } = cursor;
    const left = queue.packetsOf(entry) - packet;
    if (queue.wireOf(entry) === Wire.READ) {
      const responses = reads.next(psn, packet, left + packet, queue.asksLarge(entry));
      reads.ask(psn, psnAdd(psn, responses - 1), reads.early.countMissing(psn, responses));
      cursor.advance(queue, responses);
      continue;
    }
    if (queue.isReadOrAtomic(entry)) reads.add(psn, psn);
    if (psnDiff(sendPsn, psn) >= left) cursor.advance(queue, left);
    else cursor.find(queue, sendPsn, owner.attributes.pathMtu);
  }
}
