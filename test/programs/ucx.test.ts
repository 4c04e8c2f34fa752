/** UCX on two devices: its transports rc_verbs and ud_verbs alone, and its protocols over both. */
// @module-tag slow
// @module-tag gate
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, listening, whyMissing } from './programs.ts';

const missing =
  whyMissing() ??
  (spawnSync('which', ['ucx_perftest']).status === 0 ? undefined : 'ucx_perftest is not installed');
if (missing) console.log(`UCX is not run: ${missing}`);

/** A port of its own for each run. */
let port = 27_000;

describe.skipIf(missing !== undefined)('UCX', () => {
  let devices: Devices;
  beforeAll(async () => {
    devices = await Devices.open('127.0.0.85', '127.0.0.86');
  });
  afterAll(async () => {
    await devices.close();
  });

  async function play(...args: string[]): Promise<void> {
    // Over UCP it would take shared memory or TCP.
    const env = ['UCX_TLS=rc_verbs,ud_verbs', 'UCX_NET_DEVICES=roce0:1'];
    const all = [...env, 'ucx_perftest', '-p', `${++port}`, '-n', '20', '-w', '2', ...args];
    const server = devices.start(0, 'env', all);
    await Promise.race([listening(port), server.ended]);
    const client = devices.start(1, 'env', [...all, '127.0.0.1']);
    for (const { code, output } of await Promise.all([client.ended, server.ended]))
      expect(code, output).toBe(0);
    // The last row of the table has the iterations.
    expect((await client.ended).output).toMatch(/^Final: +20 /m);
  }

  test('finds both transports', async () => {
    const { output } = await devices.start(0, 'ucx_info', ['-d']).ended;
    for (const transport of ['rc_verbs', 'ud_verbs']) expect(output).toContain(`Transport: ${transport}`);
    expect(output).toContain('Device: roce0:1');
  });

  test.each([
    'rc_verbs -t am_lat',
    'rc_verbs -t put_lat',
    'rc_verbs -t add_lat',
    'rc_verbs -t put_bw -D zcopy -s 65536',
    'ud_verbs -t am_lat',
    'ud_verbs -t am_bw -D bcopy -s 1024',
  ])('%s', async (line) => {
    await play('-d', 'roce0:1', '-x', ...line.split(' '));
  });

  test.skipIf(!existsSync('/usr/include/ucp/api/ucp.h'))(
    'endpoints that are made by address, by rdma_cm',
    async () => {
      const folder = mkdtempSync(join(tmpdir(), 'roce-ucx-'));
      const program = join(folder, 'sockaddr');
      const source = fileURLToPath(new URL('sockaddr.c', import.meta.url));
      const compiled = spawnSync('cc', [source, '-o', program, '-lucp', '-lucs'], { encoding: 'utf8' });
      expect(compiled.stderr).toBe('');
      const start = (device: number, role: string) => {
        const env = [
          'UCX_TLS=rc_verbs,ud_verbs',
          'UCX_NET_DEVICES=roce0:1',
          'UCX_SOCKADDR_TLS_PRIORITY=rdmacm',
        ];
        return devices.start(device, 'env', [...env, program, role, '127.0.0.85']).ended;
      };
      const server = start(0, 'server');
      const listens = () => devices.servers[0].ids.listening > 0;
      for (let isOver = false; !isOver && !listens(); await sleep(10))
        void server.then(() => (isOver = true));
      // UCX could take TCP for it.
      expect(listens()).toBe(true);
      for (const { code, output } of await Promise.all([server, start(1, 'client')])) {
        expect(output).toBe('ok\n');
        expect(code).toBe(0);
      }
      rmSync(folder, { recursive: true });
    },
  );

  // Its transports are found by themselves: UD connects, RC carries.
  test.each([
    'tag_lat',
    'tag_bw -s 1048576',
    'ucp_put_bw -s 65536',
    'ucp_get -s 65536',
    'ucp_fadd',
    'stream_lat',
  ])('over UCP: %s', async (line) => {
    await play('-t', ...line.split(' '));
  });
});
