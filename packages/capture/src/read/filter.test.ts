/** Which packets are a connection's: addresses and queue pairs alone do not distinguish it from others. */
import { Opcode, setU24 } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { frameOf, QP } from '../../testing/capture-builder.ts';
import { rawRecord } from '../../testing/records.ts';
import { type ConnectionName, packetFilter } from './filter.ts';
import { PacketReader } from './reader.ts';

const ends: ConnectionName = { a: { address: '10.0.0.1', qpn: QP.a }, b: { address: '10.0.0.2', qpn: QP.b } };

/** Numbers of the frames that are the connection's. */
function framesOf(connection: ConnectionName, frames: readonly Uint8Array[]): number[] {
  const found: number[] = [];
  const reader = new PacketReader({
    onPacket: (packet, { addresses }) => {
      if (packetFilter({ connection }, addresses)(packet)) found.push(packet.frame);
    },
  });
  for (const frame of frames) reader.frame(rawRecord(frame));
  return found;
}

describe('packets of a connection', () => {
  test('both directions, between its first and its last frame', () => {
    const request = frameOf('a', Opcode.RC_SEND_ONLY, { payload: 4 });
    const answer = frameOf('b', Opcode.RC_ACKNOWLEDGE, {});
    const frames = [request, answer, request, answer, request, answer];
    expect(framesOf(ends, frames)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(framesOf({ ...ends, firstFrame: 3, lastFrame: 4 }, frames)).toEqual([3, 4]);
  });

  test('datagrams: those of its own sender', () => {
    const from = (qpn: number) => {
      const frame = frameOf('a', Opcode.UD_SEND_ONLY, { payload: 4 });
      setU24(frame, 20 + 8 + 12 + 5, qpn);
      return frame;
    };
    expect(framesOf(ends, [from(QP.a), from(0x15), from(QP.a)])).toEqual([1, 3]);
  });
});
