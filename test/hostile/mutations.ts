/** Packets with bytes changed, cut off or added: real ones on their way, and recorded ones of the real rxe. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { openCapture } from '@node-roce/pcap/node';
import { frameOf, type Random, type SimPacket } from '@node-roce/sim';
import {
  BTH_BYTES,
  bthDestQp,
  FrameType,
  ICRC_BYTES,
  parseFrame,
  setU24,
  UDP_BYTES,
  verifyIcrc,
} from '@node-roce/wire';
import { Bth } from './bth-offsets.ts';

/** Where UDP begins; the IP header is the kernel's to check. */
const ipBytes = (frame: Uint8Array) => (frame[0] >> 4 === 4 ? 20 : 40);

/** Changes one to eight places of a frame, from `start` on; now and then its length. */
export function mutate(frame: Uint8Array, start: number, random: Random): Uint8Array<ArrayBuffer> {
  let length = frame.length;
  if (random.chance(0.1)) length = Math.max(start + UDP_BYTES, length + random.between(-64, 64));
  const changed = new Uint8Array(length);
  changed.set(frame.subarray(0, length));
  for (let changes = random.between(1, 8); changes > 0; changes--) {
    // Half of them in the headers.
    const last = random.chance(0.5) ? Math.min(changed.length, start + 64) - 1 : changed.length - 1;
    const at = random.between(start, last);
    if (random.chance(0.5)) changed[at] ^= 1 << random.between(0, 7);
    else changed[at] = random.next();
  }
  return changed;
}

/**
 * A packet on its way, changed as `mutate` does it; undefined where the link discards it as a runt.
 * @param sealed the ICRC is right again, as anybody can make it: it has no key
 */
export function mutatedCopy(packet: SimPacket, random: Random, sealed: boolean): SimPacket | undefined {
  const whole = frameOf(packet);
  const frame = mutate(whole, ipBytes(whole), random);
  const start = ipBytes(frame) + UDP_BYTES;
  if (frame.length < start + BTH_BYTES + ICRC_BYTES) return undefined;
  const bytes = frame.slice(start, frame.length - ICRC_BYTES);
  return { ...packet, bytes, corrupt: !sealed && !verifyIcrc(frame, 0, frame.length) };
}

/** A recorded packet, changed, on the way of another one and mostly to the same queue pair; its ICRC is right. */
export function mutatedRecord(
  recorded: Uint8Array,
  packet: SimPacket,
  random: Random,
): SimPacket | undefined {
  const copy = mutatedCopy({ ...packet, bytes: recorded }, random, true);
  if (copy && random.chance(0.7)) setU24(copy.bytes, Bth.DEST_QP, bthDestQp(packet.bytes, 0));
  return copy;
}

/** BTH through pad of recorded packets, so many of each capture. */
export async function recordedPackets(perCapture = 24): Promise<Uint8Array[]> {
  const directory = join(import.meta.dirname, '../fixtures/captures');
  const packets: Uint8Array[] = [];
  for (const name of readdirSync(directory).filter((file) => file.endsWith('.pcap'))) {
    const enough = packets.length + perCapture;
    for await (const records of openCapture(join(directory, name))) {
      for (const { data } of records) {
        const parsed = parseFrame(data, FrameType.ETHERNET);
        if (!parsed.ok || packets.length >= enough) continue;
        const { bthOffset, trailer } = parsed.packet;
        packets.push(Uint8Array.from(data.subarray(bthOffset, data.length - trailer.length - ICRC_BYTES)));
      }
    }
  }
  return packets;
}
