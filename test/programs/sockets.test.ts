/** Debian's curl and wget under librspreload, on `roce device`, against an HTTP server of Node's over our sockets. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer, type RSocket } from '@node-roce/rsocket';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, whyMissing } from './programs.ts';

const SERVER = '127.0.0.78';
const CLIENT = '127.0.0.79';
const PORT = 8080;

const library = ['x86_64', 'aarch64']
  .map((machine) => `/usr/lib/${machine}-linux-gnu/rsocket/librspreload.so`)
  .find((path) => existsSync(path));
const isThere = (program: string) => spawnSync('which', [program]).status === 0;
const missing = whyMissing() ?? (library ? undefined : 'not installed: librspreload.so (librdmacm1)');
if (missing) console.log(`programs of TCP are not run over sockets of RDMA: ${missing}`);

/** Bytes that differ by position. */
const body = Buffer.alloc(16 * 1024 * 1024);
for (let at = 0; at < body.length; at += 4) body.writeUInt32LE(Math.imul(at, 2_654_435_761) >>> 0, at);
const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

describe.skipIf(missing !== undefined)('librspreload', () => {
  let devices: Devices;
  let folder: string;
  beforeAll(async () => {
    devices = await Devices.open(CLIENT);
    folder = mkdtempSync(join(tmpdir(), 'roce-sockets-'));
  });
  afterAll(async () => {
    const { faults } = devices;
    await devices.close();
    rmSync(folder, { recursive: true, force: true });
    expect(faults).toEqual([]);
  });

  test.for([
    ['curl', '-sS', '-o'],
    ['wget', '-nv', '-t', '1', '-O'],
  ])('%s fetches 16 MiB from a server of node:http', async ([program, ...options], { skip }) => {
    if (!isThere(program)) skip();
    const service = http.createServer((_request, response) => response.end(body));
    const sockets: RSocket[] = [];
    await using server = await createServer({ port: PORT, address: SERVER }, (socket) => {
      sockets.push(socket);
      // A process that ends without rclose(3) ends its connection without SHUTDOWN.
      socket.on('error', () => {});
      service.emit('connection', socket);
    });
    const file = join(folder, program);
    // Behind the libraries of `roce run`, which show the device.
    const preload = `export LD_PRELOAD="${library}:$LD_PRELOAD"; exec "$@"`;
    const url = `http://${SERVER}:${server.port}/`;
    const running = devices.start(0, 'sh', ['-c', preload, 'sh', program, ...options, file, url]);
    const { code, output } = await running.ended;
    expect([code, output]).toEqual([0, program === 'wget' ? expect.stringContaining(url) : '']);
    expect(digest(readFileSync(file))).toBe(digest(body));
    // Over RDMA: nothing of this process listens at a TCP port.
    expect(sockets).toHaveLength(1);
    expect(sockets[0].remoteAddress).toBe(CLIENT);
    expect(sockets[0].bytesWritten).toBeGreaterThan(body.length);
    service.closeAllConnections();
  });
});
