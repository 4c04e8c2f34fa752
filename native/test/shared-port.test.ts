import { spawn, spawnSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { closeSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { LocalSocket, Port, Socket } from '../index.js';

const { EAGAIN, ECONNREFUSED } = constants.errno;
const NAME = `node-roce-test/${process.pid}`;
const ADDRESS = '127.0.0.1';

const open = (options = {}) =>
  new Socket({ family: 4, address: ADDRESS, port: ownPort, reusePort: true, ...options });
/** Classic BPF: the byte at 7, the last of the destination QPN, is the index. */
const BY_QPN = Uint32Array.of(0x30, 7, 0x16, 0);

test('a message has its bytes, the user id of its sender and its descriptors', () => {
  const [a, b] = [new LocalSocket(`${NAME}/a`), new LocalSocket(`${NAME}/b`)];
  const socket = open();
  const copies = [socket.duplicate(), socket.duplicate()];
  b.allowDescriptors(true);
  expect(a.send(`${NAME}/b`, Uint8Array.of(1, 2, 3), copies)).toBe(0);
  const bytes = new Uint8Array(8);
  const message = b.receive(bytes);
  expect(message).toMatchObject({ length: 3, uid: process.geteuid?.() });
  expect([...bytes.subarray(0, 3)]).toEqual([1, 2, 3]);
  expect(message?.descriptors).toHaveLength(2);
  expect(b.receive(bytes)).toBeUndefined();

  const same = open({ descriptor: message?.descriptors[0] });
  expect(same).toMatchObject({ address: ADDRESS, port: ownPort, closed: false });
  expect(() => open({ reusePort: false })).toThrow(/EADDRINUSE/);
  for (const each of [...copies, ...(message?.descriptors ?? [])]) closeSync(each);
  for (const each of [socket, same, a, b]) each.close();
  open({ reusePort: false }).close(); // Nobody has it any more.
});

const hasStranger = process.geteuid?.() === 0 && spawnSync('python3', ['--version']).status === 0;

test.skipIf(!hasStranger).each([false, true])(
  'descriptors of another user, whose close would wait for hours, hold nobody up (descriptors allowed: %s)',
  async (allowed) => {
    const [a, b] = [new LocalSocket(`${NAME}/a`), new LocalSocket(`${NAME}/b`)];
    b.allowDescriptors(allowed);
    const stranger = spawn('python3', [join(import.meta.dirname, 'stranger.py'), `${NAME}/b`], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    // A line, not a chunk: with PYTHONUNBUFFERED each print is two writes.
    const [said] = await once(createInterface(stranger.stdout), 'line');
    const bytes = new Uint8Array(8);
    expect(b.receive(bytes)).toBeUndefined();
    if (allowed) expect(said).toBe('sent');
    expect(a.send(`${NAME}/b`, Uint8Array.of(7))).toBe(0);
    stranger.kill('SIGKILL'); // The socket's peer goes, and with it what its close waits for.
    let message = b.receive(bytes);
    for (; message === undefined; message = b.receive(bytes)) await sleep(1);
    expect(message).toMatchObject({ length: 1, uid: process.geteuid?.(), descriptors: [] });
    for (const each of [a, b]) each.close();
  },
);

test('a name is one socket’s, until that is closed', () => {
  const a = new LocalSocket(`${NAME}/a`);
  expect(() => new LocalSocket(`${NAME}/a`)).toThrow(expect.objectContaining({ code: 'EADDRINUSE' }));
  expect(a.send(`${NAME}/nobody`, Uint8Array.of(1))).toBe(ECONNREFUSED);
  let errno = 0;
  while (errno === 0) errno = a.send(`${NAME}/a`, Uint8Array.of(1));
  expect(errno).toBe(EAGAIN);
  a.close();
  new LocalSocket(`${NAME}/a`).close();
});

test('wrong names, messages and descriptors are refused', () => {
  const a = new LocalSocket(`${NAME}/a`);
  expect(() => new LocalSocket('')).toThrow(RangeError);
  expect(() => new LocalSocket('x'.repeat(108))).toThrow(RangeError);
  expect(() => new LocalSocket(1 as never)).toThrow(TypeError);
  expect(() => a.send('x', 'bytes' as never)).toThrow(TypeError);
  expect(() => a.send('x', new Uint8Array(1), {} as never)).toThrow(TypeError);
  expect(() => a.send('x', new Uint8Array(1), new Array(65).fill(0))).toThrow(RangeError);
  expect(() => a.allowDescriptors(1 as never)).toThrow(TypeError);
  expect(() => open({ descriptor: 0.5 })).toThrow(RangeError);
  expect(() => open({ descriptor: 1 << 20 })).toThrow(/EBADF/);
  const socket = open();
  expect(() => socket.steer(new Uint32Array(1))).toThrow(RangeError);
  expect(() => socket.steer(Uint32Array.of(0xffff, 0))).toThrow(/EINVAL/);
  expect(() => socket.mute(1 as never)).toThrow(TypeError);
  socket.close();
  expect(() => socket.duplicate()).toThrow(/EBADF/);
  a.close();
});

test('a program steers, and goes on when the sockets’ first owner is gone', async () => {
  const sender = createSocket('udp4');
  const first = [open(), open(), open()];
  first[0].steer(BY_QPN);
  const held = first.map((socket) => socket.duplicate());
  for (const socket of first) socket.close();
  const own = held.map((descriptor) => open({ descriptor }));
  const counts = () =>
    own.map((socket) => {
      const port = new Port();
      port.addLocal(socket);
      const count = port.receive(new Uint8Array(1 << 20), new Uint32Array(12 * 64), new Uint8Array(1024), 64);
      port.close();
      return count;
    });
  const send = async () => {
    for (const qpn of [1, 2, 2]) {
      const packet = new Uint8Array(24);
      packet[7] = qpn;
      await new Promise((resolve) => sender.send(packet, ownPort, ADDRESS, resolve));
    }
  };
  await send();
  expect(counts()).toEqual([0, 1, 2]);
  own[1].mute(true);
  await send();
  own[1].mute(false);
  expect(counts()).toEqual([0, 0, 2]);
  await send();
  expect(counts()).toEqual([0, 1, 2]);
  for (const descriptor of held) closeSync(descriptor);
  for (const socket of own) socket.close();
  sender.close();
});

test('a port wakes for the messages of a local socket, and reports that there are some', async () => {
  const [a, b] = [new LocalSocket(`${NAME}/a`), new LocalSocket(`${NAME}/b`)];
  let onWake = () => {};
  const woken = new Promise<void>((resolve) => {
    onWake = resolve;
  });
  const port = new Port({ onWake });
  const station = open();
  port.addLocal(station);
  port.watch(b);
  const receive = () =>
    port.receive(new Uint8Array(1 << 20), new Uint32Array(12 * 64), new Uint8Array(1024), 64);
  receive();
  expect(port.takeMail()).toBe(false);
  port.start();
  a.send(`${NAME}/b`, Uint8Array.of(1));
  await woken;
  expect(receive()).toBe(0);
  expect(port.takeMail()).toBe(true);
  expect(port.takeMail()).toBe(false);
  port.unwatch(b);
  receive();
  expect(port.takeMail()).toBe(false);
  expect(() => port.unwatch(b)).toThrow(TypeError);
  expect(() => port.watch(station as never)).toThrow(TypeError);
  port.close();
  for (const each of [a, b, station]) each.close();
});
