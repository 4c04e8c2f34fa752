/** Debian's programs of libibverbs, unmodified, on `roce run` here and on a real rxe in the guest. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DeviceServer } from '@node-roce/device';
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest';
import { whyMissing } from '../programs/programs.ts';
import { difference, Guest } from './harness/guest.ts';
import { TROUBLE } from './harness/pingpong.ts';
import { playConnected, playProgram } from './harness/programs.ts';
import { WireCapture } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const folder = mkdtempSync(join(tmpdir(), 'roce-programs-'));
let device: DeviceServer;

beforeAll(async () => {
  expect(whyMissing()).toBeUndefined();
  device = await DeviceServer.listen({ address: guest.address.hostIp4, path: join(folder, 'device.sock') });
});
afterAll(async () => {
  await device.close();
  rmSync(folder, { recursive: true });
});

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

/** One run of both sides: every ICRC is right, and nothing is left of the program. */
async function play(role: 'server' | 'client', line: string): Promise<[ours: string, theirs: string]> {
  const before = await guest.counters();
  capture?.discard();
  capture = await WireCapture.start(guest.address);
  const outputs = await playProgram(guest, role, device.path, line);
  const packets = await capture.stop();
  const ours = packets.filter(({ source }) => source === guest.address.hostIp4);
  // Of a stream of writes, the other way has a few acknowledgements only.
  expect(packets.length).toBeGreaterThanOrEqual(40);
  expect(ours.length).toBeGreaterThan(0);
  expect(ours.length).toBeLessThan(packets.length);
  expect(packets.filter(({ icrcOk }) => !icrcOk)).toEqual([]);
  const moved = Object.keys(difference(before, await guest.counters()));
  // What our device dropped tells whose trouble it is.
  const { counters } = await device.report();
  const counted = Object.entries({ ...counters, ...counters.link }).filter(([, count]) => Number(count) > 0);
  const trouble = moved.filter((name) => TROUBLE.includes(name));
  expect(trouble, `our device has counted ${counted.join(' ')}`).toEqual([]);
  await expect.poll(() => device.status, { timeout: 5000 }).toEqual({ programs: 0, objects: 0 });
  return outputs;
}

describe.each(['server', 'client'] as const)('our program is the %s', (role) => {
  // Nothing is retransmitted for UC and UD: once more where a machine that was busy lost a packet.
  test.each([
    'ibv_rc_pingpong -c -n 50',
    'ibv_uc_pingpong -c -n 50',
    'ibv_ud_pingpong -e -s 1024 -n 50',
    'ibv_srq_pingpong -c -n 50 -q 4',
  ])('%s', { retry: 2 }, async (line) => {
    for (const output of await play(role, line)) expect(output).toMatch(/\d+ iters in/);
  });

  test.each([
    'ib_write_bw -s 65536 -n 20',
    'ib_send_lat -n 20',
    'ib_read_bw -q 2 -n 20',
    'ib_atomic_bw -n 20',
  ])('%s', { retry: 2 }, async (line) => {
    // "inf": of latencies where the guest's program found no clock, on a busy machine.
    for (const output of await play(role, `${line} -F`))
      expect(output).toMatch(/^ \d+ +\d+ +(?:[\d.]+|inf)/m);
  });

  test.each([
    ['rping -s -v -S 1000 -C 10', 'rping -c -v -S 1000 -C 10 -a'],
    ['ucmatose -c 4', 'ucmatose -c 4 -s'],
    ['udaddy', 'udaddy -s'],
    ['rdma_server', 'rdma_client -s'],
    ['ib_write_bw -R -F -n 50', 'ib_write_bw -R -F -n 50'],
    ['rping -s -q -S 4000 -C 3', 'rping -c -q -S 4000 -C 3 -a'],
    ['rdma_xserver', 'rdma_xclient -s'],
    ['rstream -S 65536 -C 20 -T b -T v', 'rstream -S 65536 -C 20 -T b -T v -s'],
    ['rstream -S 777 -C 20 -T r -T n', 'rstream -S 777 -C 20 -T r -T n -s'],
    ['riostream -S 4096 -C 20', 'riostream -S 4096 -C 20 -s'],
  ])('%s and %s', async (serverLine, clientLine) => {
    await playConnected(guest, role, device, serverLine, clientLine);
    await expect.poll(() => device.ids, { timeout: 30_000 }).toEqual({ ids: 0, listening: 0 });
  });
});
