/**
 * Programs that send random bytes to a device and write them into the memory and rings they share with it, and programs whose calls and
 * entries have the right form and wild contents: no other program is harmed.
 */
// @module-tag slow
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { CALLS, PROTOCOL_VERSION } from '../../packages/device/src/messages.ts';
import { Devices, whyMissing } from '../programs/programs.ts';

const SECONDS = Number(process.env.ROCE_HOSTILE_PROGRAM_SECONDS ?? 5);
const missing = whyMissing();
const [hostile, wild] = ['hostile', 'wild'].map((name) =>
  fileURLToPath(new URL(`../programs/${name}.py`, import.meta.url)),
);

test.skipIf(missing !== undefined)(
  'hostile programs harm no other program of their devices',
  {
    timeout: 600_000 + SECONDS * 1000,
  },
  async () => {
    const devices = await Devices.open('127.0.0.76', '127.0.0.77');
    try {
      const start = (program: string, device: number, ...numbers: number[]) => {
        const args = [program, devices.servers[device].path, ...[SECONDS, ...numbers].map(String)];
        return devices.start(device, '/usr/bin/python3', args, SECONDS * 1000 + 240_000).ended;
      };
      const lastCall = Math.max(...Object.values(CALLS).map(({ number }) => number));
      const running = [0, 1, 0].map((device, seed) =>
        start(hostile, device, seed, PROTOCOL_VERSION, lastCall),
      );
      const wildOnes = [0, 1].map((device, seed) => start(wild, device, seed, PROTOCOL_VERSION));
      let isOver = false;
      const all = Promise.all([...running, ...wildOnes]).finally(() => {
        isOver = true;
      });
      let rounds = 0;
      for (; !isOver || rounds === 0; rounds++) {
        const args = ['-g', '0', '-n', '50', '-c'];
        const [server, client] = await devices.pair('ibv_rc_pingpong', args, 24_000 + (rounds % 1000));
        for (const { code, output } of [server, client]) {
          expect(code, output).toBe(0);
          expect(output).toMatch(/50 iters in/);
        }
      }
      await all;
      const results = await Promise.all(running);
      for (const { code, output } of results) {
        expect(code, output).toBe(0);
        const [, answered, completed, ended] =
          /^(\d+) answered, (\d+) completed, (\d+) ended$/m.exec(output) ?? [];
        expect(Number(answered)).toBeGreaterThan(100);
        expect(Number(completed)).toBeGreaterThan(20);
        expect(Number(ended)).toBeGreaterThan(0);
      }
      for (const { code, output } of await Promise.all(wildOnes)) {
        expect(code, output).toBe(0);
        const [, calls, succeeded] = /, (\d+) calls, (\d+) succeeded$/m.exec(output) ?? [];
        expect(Number(calls)).toBeGreaterThan(100);
        expect(Number(succeeded)).toBeGreaterThan(Number(calls) / 4);
      }
      expect(devices.faults).toEqual([]);
      if (SECONDS > 5)
        console.log(`${rounds} ping-pongs during ${results.map(({ output }) => output.trim()).join('; ')}`);
      const none = { programs: 0, objects: 0 };
      await expect.poll(() => devices.servers.map(({ status }) => status)).toEqual([none, none]);
    } finally {
      await devices.close();
    }
  },
);
