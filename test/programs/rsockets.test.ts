/** Debian's programs of rsockets, unmodified, on `roce device`: each in both roles, with a socket of ours at the other end. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, listen } from '@node-roce/rsocket';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Devices, isThere, whyMissing } from './programs.ts';
import { optionsOf, playDirect, playStream, type Run, receiveCopy, sendCopy } from './rsocket-peers.ts';

const OURS = '127.0.0.80';
const THEIRS = '127.0.0.81';

const missing = whyMissing() ?? (isThere('riostream') ? undefined : 'not installed: rdmacm-utils');
if (missing) console.log(`programs of rsockets are not run: ${missing}`);

const RUNS: Run[] = [
  { size: 4096, count: 20, rounds: 3 },
  // Longer than the ring of either side.
  { size: 700_001, count: 2, rounds: 2 },
];
const PROGRAMS = {
  rstream: { play: playStream, options: '-T b' },
  riostream: { play: playDirect, options: '-T v -T b' },
  'riostream -f ip': { play: playDirect, options: '-T v -T a' },
} as const;
const CASES = RUNS.flatMap((run) => Object.entries(PROGRAMS).map(([line, how]) => ({ line, run, ...how })));

describe.skipIf(missing !== undefined)('rsockets of librdmacm', () => {
  let devices: Devices;
  let port = 7500;
  beforeAll(async () => {
    devices = await Devices.open(THEIRS);
  });
  afterAll(async () => {
    const { faults } = devices;
    await devices.close();
    expect(faults).toEqual([]);
  });

  const start = (line: string) => {
    const [program, ...args] = line.split(' ');
    return devices.start(0, program, args);
  };

  /** Resolves once a program listens at the device, or has ended. */
  async function serving(ended: Promise<unknown>): Promise<void> {
    let isOver = false;
    void ended.then(() => {
      isOver = true;
    });
    while (!isOver && devices.servers[0].ids.listening === 0) await sleep(10);
  }

  test.each(CASES)('$line as our client: $run', { tags: ['slow'] }, async ({ line, run, play, options }) => {
    await using server = await listen({ address: OURS, port: ++port, ioMappings: 1 });
    const running = start(`${line} -s ${OURS} -p ${port} ${optionsOf(run)} ${options}`);
    const socket = await server.accept();
    const conversation = await play(socket, false, run);
    const { code, output } = await running.ended;
    expect(code, output).toBe(0);
    expect(output).toMatch(/^custom /m);
    await conversation.end();
  });

  test.each(CASES)('$line as our server: $run', { tags: ['slow'] }, async ({ line, run, play, options }) => {
    const running = start(`${line} -b ${THEIRS} -p ${++port} ${optionsOf(run)} ${options}`);
    await serving(running.ended);
    const socket = await connect({ host: THEIRS, source: OURS, port, ioMappings: 1 });
    const conversation = await play(socket, true, run);
    socket.end();
    const { code, output } = await running.ended;
    expect(code, output).toBe(0);
    expect(output).toMatch(/^custom /m);
    await conversation.end();
  });

  test('rcopy copies a file to us, and one of ours', { tags: ['slow'] }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'roce-rcopy-'));
    const [from, to] = ['from', 'to'].map((name) => join(folder, name));
    const bytes = randomBytes(1_234_567);
    writeFileSync(from, bytes);
    await using server = await listen({ address: OURS, port: ++port });
    const client = devices.start(0, 'rcopy', [from, `${OURS}:its name`, '-p', `${port}`]);
    expect(await receiveCopy(await server.accept())).toEqual({ path: 'its name', bytes });
    const { code, output } = await client.ended;
    expect(code, output).toBe(0);
    const waiting = start(`rcopy -p ${++port}`);
    await serving(waiting.ended);
    await sendCopy(await connect({ host: THEIRS, source: OURS, port }), to, bytes);
    expect(readFileSync(to).equals(bytes)).toBe(true);
    waiting.child.kill('SIGKILL');
    await waiting.ended;
    rmSync(folder, { recursive: true });
  });
});
