/** Both sides on this machine, of which one fails: the error is the cause, and not what the other side saw of it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { localPerf, type PerfOptions } from '@node-roce/perf';
import { Device, ProtectionDomain } from '@node-roce/verbs-api';
import { afterEach, expect, test, vi } from 'vitest';
import { guard } from './guard.ts';
import { OURS, THEIRS } from './sides.ts';

guard();
afterEach(() => void vi.restoreAllMocks());

const LAT: PerfOptions = { verb: 'send', measure: 'lat', iters: 20 };
const addresses = [OURS, THEIRS] as const;

/** The server sees that its client has left, and ends before it. */
function closeSlowly() {
  const { close } = Device.prototype;
  vi.spyOn(Device.prototype, 'close').mockImplementation(async function (this: Device) {
    await sleep(300);
    await close.call(this);
  });
}

test('the server has no device', async () => {
  const played = localPerf(LAT, { addresses: [OURS, '192.0.2.1'] });
  await expect(played).rejects.toMatchObject({
    message: expect.stringMatching(/^the server: .*192\.0\.2\.1/),
  });
});

test('the client has no memory', async () => {
  closeSlowly();
  vi.spyOn(ProtectionDomain.prototype, 'registerMr').mockRejectedValue(new Error('no room'));
  await expect(localPerf(LAT, { addresses })).rejects.toThrow(/^no room$/);
});
