/** A device next to which perftest runs, against servers that misbehave. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, test } from 'vitest';
import type { ConnectionSpec } from '../device.ts';
import { rules } from '../rules/all.ts';
import { play } from '../run.ts';
import { VirtualLine } from '../virtual/line.ts';
import { perftestDevice } from './perftest-device.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** Sizes of the messages of the dialogue, in order. */
const SIZES = [16, 4, 4, 2, 108, 108, 108];
const KEY = `0000:0004:000040:000123:0000abcd:00007f0000001000:${'00:'.repeat(16)}00000000:\0`;

/** A server that takes each message, and sends what `answer` has for it. */
async function serve(
  answer: (step: number, message: Buffer, socket: Socket) => string | Buffer,
): Promise<number> {
  const server = createServer((socket) => {
    let [buffer, step] = [Buffer.alloc(0), 0];
    socket.on('error', () => {});
    socket.on('data', (data) => {
      buffer = Buffer.concat([buffer, data]);
      while (step < SIZES.length && buffer.length >= SIZES[step]) {
        const message = buffer.subarray(0, SIZES[step]);
        buffer = buffer.subarray(SIZES[step]);
        socket.write(answer(step++, message, socket));
      }
    });
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

const playWith = (port: number, id: string) =>
  play(rules(id)[0], {
    line: new VirtualLine(),
    device: perftestDevice('127.0.0.1', port),
    waits: { quiet: 1, patience: 1, slack: 1 },
    connections: 0,
  });

test('takes queue pair, PSN, key and address out of the dialogue', async () => {
  const seen: string[] = [];
  const port = await serve((step, message) => {
    seen.push(message.toString('latin1'));
    return step >= 4 ? KEY : message;
  });
  const { ladder, why } = await playWith(port, 'PSN-01');
  expect(ladder, why.join('\n')).toContain('16 B at 0x7f0000001000 key 0xabcd');
  expect(seen.slice(0, 4)).toEqual(['6.06'.padEnd(16, '\0'), '\0\0\x10\0', '\0\0\0\x40', '3\0']);
  expect(seen[4]).toMatch(/^0000:0004:000100:001000:.*:ff:ff:0a:4d:00:01:00000000:\0$/);
  expect(seen.slice(5)).toEqual([seen[4], seen[4]]);
});

test('a server that sends something else, or goes, is broken', async () => {
  const babbling = await serve((step, message) => (step === 4 ? 'x'.repeat(108) : message));
  expect(await playWith(babbling, 'PSN-01')).toMatchObject({
    verdict: 'broken',
    why: [expect.stringContaining('is it perftest?')],
  });
  const leaving = await serve((step, message, socket) => {
    if (step === 3) socket.destroy();
    return message;
  });
  expect(await playWith(leaving, 'PSN-01')).toMatchObject({ verdict: 'broken' });
});

test('a server that floods behind the dialogue is cut off', async () => {
  let cut: Promise<unknown> | undefined;
  const port = await serve((step, message, socket) => {
    if (step < 6) return step >= 4 ? KEY : message;
    cut = new Promise((resolve) => socket.on('close', resolve));
    const flood = () => socket.write(Buffer.alloc(65_536), (error) => error ?? flood());
    flood();
    return KEY;
  });
  const spec = { service: 'rc', uses: [], receives: 0, size: 65_536, pathMtu: 1024, state: 'RTS' };
  const connecting = { ...spec, address: '10.0.0.1', qpn: 0x100, psn: 1, maxRdAtomic: 4 };
  await perftestDevice('127.0.0.1', port).connect(connecting as unknown as ConnectionSpec);
  // The tester ends it: this side never does.
  await cut;
});

test('a server that is not started again is broken once, and then not testable', async () => {
  const port = await serve((step, message) => (step >= 4 ? KEY : message));
  const device = perftestDevice('127.0.0.1', port, { first: 1, again: 2 });
  const bench = {
    line: new VirtualLine(),
    device,
    waits: { quiet: 1, patience: 1, slack: 1 },
    connections: 0,
  };
  const [rule] = rules('PSN-01');
  expect((await play(rule, bench)).verdict).toBe('deviation');
  const server = servers.pop();
  server?.close();
  expect(await play(rule, bench)).toMatchObject({
    verdict: 'broken',
    why: [`ib_write_bw at port ${port} is not started again`],
  });
  expect(await play(rule, bench)).toMatchObject({
    verdict: 'not testable',
    why: [`no ib_write_bw at port ${port}: run ib_write_bw -F -p ${port} there, in a loop`],
  });
});

test('rules that need more than perftest has are not testable', async () => {
  const port = await serve((_, message) => message);
  for (const [id, why] of [
    ['KEY-03', 'needs a region that begins at the address of its key'],
    ['UC-01', 'needs an unreliable connection'],
  ])
    expect(await playWith(port, id)).toMatchObject({ verdict: 'not testable', why: [why] });
  servers.pop()?.close();
  expect(await playWith(port, 'PSN-01')).toMatchObject({
    verdict: 'not testable',
    why: [`no ib_write_bw at port ${port}: run ib_write_bw -F -p ${port} there, in a loop`],
  });
});
