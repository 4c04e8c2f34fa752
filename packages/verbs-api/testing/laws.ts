/** The law of two devices joined by a path that loses nothing: almost nothing is sent twice. */
import { expect } from 'vitest';
import type { Device } from '../src/index.ts';

/** A probe is needless when a peer is slower than ever before, as on a busy machine. */
const FEW = 8;
const SHARE = 1 / 100;

/** To be called before the devices are closed. */
export async function expectFewDuplicates(...devices: readonly Device[]): Promise<void> {
  for (const device of devices) {
    const { duplicateRequest, receivedPackets } = await device.counters();
    expect(duplicateRequest, 'packets that the receiver had already').toBeLessThanOrEqual(
      FEW + receivedPackets * SHARE,
    );
  }
}
