/** Every message of the connection manager in the recorded captures decodes, and encodes to the same bytes. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { openCapture } from '@node-roce/pcap/node';
import { decodeCm, encodeCm, parseFrame, toHex } from '@node-roce/wire';
import { expect, test } from 'vitest';

const folder = join(import.meta.dirname, '../fixtures/captures');

test('all recorded messages, byte by byte', async () => {
  const counts: Record<string, number> = {};
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.pcap'))) {
    await using capture = openCapture(join(folder, file));
    for await (const batch of capture) {
      for (const record of batch) {
        const parsed = parseFrame(record.data, record.linkType);
        if (!parsed.ok || parsed.packet.bth.destQp !== 1) continue;
        const { payload } = parsed.packet;
        const result = decodeCm(payload);
        if (!result.ok) throw new Error(`${file}: ${result.reason}`);
        const { message } = result;
        counts[message.name] = (counts[message.name] ?? 0) + 1;
        expect(toHex(encodeCm(message)), `${file} ${message.name}`).toBe(toHex(payload));
      }
    }
  }
  // At least: more captures may be added.
  for (const [name, count] of Object.entries({ REQ: 10, REP: 9, RTU: 9, DREQ: 10, DREP: 10, REJ: 1 }))
    expect(counts[name], name).toBeGreaterThanOrEqual(count);
});
