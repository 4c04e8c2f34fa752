/** Streams that write, read, and end in one of several ways at a random moment. */
import type { Duplex } from 'node:stream';
import type { CompletionQueue, Device, ProtectionDomain } from '@node-roce/verbs-api';
import { turns } from '../../verbs-api/testing/clock.ts';

/** Domains and completion queues that can be made now. */
export async function room(device: Device): Promise<number[]> {
  const made = { pds: [] as ProtectionDomain[], cqs: [] as CompletionQueue[] };
  const untilRefused = async (make: () => Promise<void>) => {
    for (;;) {
      try {
        await make();
      } catch {
        return;
      }
    }
  };
  await untilRefused(async () => void made.pds.push(await device.allocPd()));
  await untilRefused(async () => void made.cqs.push(await device.createCq(4)));
  const counts = [made.pds.length, made.cqs.length];
  for (const each of made.pds) await each.dealloc();
  for (const each of made.cqs) await each.destroy();
  return counts;
}

/** How a side ends; `vanish`: neither hears of the other any more. */
export type Way = 'end' | 'abort' | 'destroy' | 'fail' | 'close' | 'vanish';

/** One side: it writes, reads, and ends in one of the ways after some turns. */
export interface Side {
  stream: Duplex;
  sent: number;
  read: number;
  ended: boolean;
  finished: boolean;
  error: unknown;
  closed: Promise<void>;
}

const byteAt = (index: number) => (index * 31 + (index >> 8)) & 255;

/** Reads the stream, whose bytes have to be those that `play` writes. */
export function watch(stream: Duplex): Side {
  const closed = new Promise<void>((resolve) => stream.once('close', resolve));
  const side: Side = { stream, sent: 0, read: 0, ended: false, finished: false, error: undefined, closed };
  stream.on('error', (error) => {
    side.error = error;
  });
  stream.on('finish', () => {
    side.finished = true;
  });
  stream.on('end', () => {
    side.ended = true;
  });
  stream.on('data', (data: Buffer) => {
    for (const byte of data)
      if (byte !== byteAt(side.read++)) throw new Error(`byte ${side.read - 1} differs`);
  });
  return side;
}

/** @param calls ends that are not the stream's */
export async function play(
  side: Side,
  way: Way,
  draw: (below: number) => number,
  calls: { abort(): void; close?(): void },
): Promise<void> {
  const { stream } = side;
  for (let writes = draw(12); writes > 0 && !stream.destroyed && stream.writable; writes--) {
    const chunk = Uint8Array.from({ length: draw(200) }, (_, i) => byteAt(side.sent + i));
    side.sent += chunk.length;
    stream.write(chunk);
    await turns(draw(8));
    if (draw(4) === 0) stream.pause();
    if (draw(2) === 0) stream.resume();
  }
  stream.resume();
  if (stream.destroyed) return;
  if (way === 'end') stream.end();
  else if (way === 'abort') calls.abort();
  else if (way === 'destroy') stream.destroy();
  else if (way === 'fail') stream.destroy(new Error('the program failed'));
  else if (way === 'close') calls.close?.();
}
