import { constants } from 'node:os';
import { gidFromText } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { layout, Port, Socket } from '../index.js';
import { allOk, pattern, psnOf, Station } from './support.ts';

test('reports the address it is bound to and the buffers granted', () => {
  const socket = new Socket({
    family: 4,
    address: '127.0.0.1',
    port: 0,
    receiveBuffer: 1 << 20,
    sendBuffer: 1 << 19,
  });
  expect(socket).toMatchObject({ address: '127.0.0.1', family: 4, gro: false, drops: 0, closed: false });
  expect(socket.port).toBeGreaterThan(0);
  expect(socket.receiveBuffer).toBeGreaterThanOrEqual(200_000);
  expect(socket.sendBuffer).toBeGreaterThanOrEqual(200_000);
  socket.close();
  socket.close();
  expect(socket).toMatchObject({ closed: true, receiveBuffer: 0 });
});

test('a bind that fails reports the error and the address', () => {
  const first = new Socket({ family: 4, address: '127.0.0.1', port: ownPort });
  try {
    expect(() => new Socket({ family: 4, address: '127.0.0.1', port: ownPort })).toThrow(
      expect.objectContaining({
        code: 'EADDRINUSE',
        errno: -constants.errno.EADDRINUSE,
        syscall: 'bind',
        address: '127.0.0.1',
        port: ownPort,
      }),
    );
    expect(() => new Socket({ family: 4, address: '192.0.2.1', port: ownPort })).toThrow(
      expect.objectContaining({ code: 'EADDRNOTAVAIL' }),
    );
  } finally {
    first.close();
  }
});

test('reusePort shares a port', () => {
  const open = (reusePort: boolean) =>
    new Socket({ family: 4, address: '127.0.0.1', port: ownPort, reusePort });
  const first = open(true);
  const second = open(true);
  expect(() => open(false)).toThrow(/EADDRINUSE/);
  first.close();
  second.close();
});

test.each([
  [{}, TypeError],
  [{ family: 5, address: '127.0.0.1', port: 0 }, RangeError],
  [{ family: 4, address: '::1', port: 0 }, TypeError],
  [{ family: 6, address: '127.0.0.1', port: 0 }, TypeError],
  [{ family: 4, address: 'localhost', port: 0 }, TypeError],
  [{ family: 4, address: '127.0.0.1\0', port: 0 }, TypeError],
  [{ family: 4, address: '127.0.0.1', port: 65_536 }, RangeError],
  [{ family: 4, address: '127.0.0.1', port: 0.5 }, RangeError],
  [{ family: 4, address: '127.0.0.1', port: 0, receiveBuffer: -1 }, RangeError],
  [{ family: 4, address: '127.0.0.1', port: 0, gro: 1 }, TypeError],
  [{ family: 4, address: '127.0.0.1', port: 0, device: 'a-name-that-is-too-long' }, RangeError],
])('refuses %j', (options, kind) => {
  expect(() => new Socket(options as never)).toThrow(kind);
});

test('binds to a device, and refuses one that does not exist', () => {
  new Socket({ family: 4, address: '127.0.0.1', port: 0, device: 'lo' }).close();
  expect(() => new Socket({ family: 4, address: '127.0.0.1', port: 0, device: 'no-such-dev' })).toThrow(
    expect.objectContaining({ code: 'ENODEV' }),
  );
});

test('a group: a socket of its own, bound to its address', () => {
  const station = new Station('127.0.0.1', ownPort);
  const group = new Socket({ family: 4, address: '239.1.2.3', port: ownPort, gro: true });
  const outside = new Station('127.0.0.2', ownPort);
  try {
    group.joinGroup('239.1.2.3', 'lo');
    const local = station.port.addLocal(group);
    const peer = outside.peer('239.1.2.3', ownPort, 1);
    const region = outside.regions.add(pattern(4096));
    for (let i = 0; i < 5; i++) outside.add({ peer, fragments: [[region, 0, 1000]] });
    expect(outside.flush().status).toEqual([0, 0, 0, 0, 0]);
    const packets = station.receive();
    expect(packets.map(psnOf)).toEqual([0, 1, 2, 3, 4]);
    expect(allOk(packets)).toBe(true);
    expect(packets[0]).toMatchObject({ local, hopLimit: 1, source: gidFromText('127.0.0.2') });
    expect(() => station.port.addPeer({ address: gidFromText('127.0.0.2'), local })).toThrow(RangeError);

    group.leaveGroup('239.1.2.3', 'lo');
    outside.add({ peer });
    outside.flush();
    expect(station.receive()).toEqual([]);
  } finally {
    for (const each of [station, outside]) each.close();
    group.close();
  }
});

test('a group has as many sockets on one machine as want it, and each takes what it joined itself', () => {
  const sender = new Station('127.0.0.1', ownPort, {}, { multicastInterface: 'lo' });
  const members = [new Port(), new Port(), new Port()].map((port) => {
    const socket = new Socket({ family: 4, address: '239.1.2.3', port: ownPort });
    return { port, socket, local: port.addLocal(socket) };
  });
  try {
    for (const { socket } of members.slice(0, 2)) socket.joinGroup('239.1.2.3', 'lo');
    sender.add({ peer: sender.peer('239.1.2.3', ownPort) });
    sender.flush();
    const heard = members.map(({ port }) => {
      const slots = new Uint32Array(layout.RX_SLOT_WORDS * 128);
      return port.receive(new Uint8Array(1 << 17), slots, new Uint8Array(16 * 128), 128);
    });
    expect(heard).toEqual([1, 1, 0]);
  } finally {
    sender.close();
    for (const { port, socket } of members) {
      port.close();
      socket.close();
    }
  }
});

test('refuses an unknown interface for groups', () => {
  const options = { family: 4, address: '127.0.0.1', port: 0, multicastInterface: 'no-such-dev' } as const;
  expect(() => new Socket(options)).toThrow(expect.objectContaining({ code: 'ENODEV' }));
});

test('refuses groups that are no multicast address, or were not joined', () => {
  const socket = new Socket({ family: 4, address: '239.1.2.3', port: ownPort });
  expect(() => socket.joinGroup('127.0.0.1')).toThrow(RangeError);
  expect(() => socket.joinGroup('ff02::1')).toThrow(TypeError);
  expect(() => socket.joinGroup('239.1.2.3', 'no-such-dev')).toThrow(
    expect.objectContaining({ code: 'ENODEV' }),
  );
  expect(() => socket.leaveGroup('239.1.2.4', 'lo')).toThrow(
    expect.objectContaining({ code: 'EADDRNOTAVAIL' }),
  );
  socket.close();
  expect(() => socket.joinGroup('239.1.2.3', 'lo')).toThrow(expect.objectContaining({ code: 'EBADF' }));
});

test('the kernel’s drops are counted when the receive buffer overflows', () => {
  const from = new Station('127.0.0.1', ownPort);
  const to = new Station('127.0.0.2', ownPort, {}, { receiveBuffer: 16_384 });
  try {
    const peer = from.peer('127.0.0.2', ownPort);
    const region = from.regions.add(pattern(4096));
    for (let i = 0; i < 100; i++) {
      from.add({ peer, fragments: [[region, 0, 4096]] });
      from.flush(); // one datagram each
    }
    const heard = to.receive().length;
    const { kernelDrops } = to.port.stats();
    expect(heard).toBeLessThan(100);
    expect(heard + kernelDrops).toBe(100);
    expect(to.socket.drops).toBe(kernelDrops);
    to.port.close();
    expect(to.port.stats().kernelDrops).toBe(kernelDrops);
  } finally {
    from.close();
    to.close();
  }
});

test('a socket closed under its port is skipped', () => {
  const from = new Station('127.0.0.1', ownPort);
  const to = new Station('127.0.0.2', ownPort);
  try {
    const peer = from.peer('127.0.0.2', ownPort);
    to.socket.close();
    from.add({ peer });
    from.flush();
    expect(to.receive()).toEqual([]);
    from.socket.close();
    from.add({ peer }); // its transmit socket is open already
    from.add({ peer, sourcePort: ownPort }); // the closed one is asked for
    expect(from.flush().status).toEqual([0, constants.errno.EBADF]);
  } finally {
    from.close();
    to.close();
  }
});

test('receive: false hears nothing', () => {
  const port = new Port();
  const deaf = new Socket({ family: 4, address: '127.0.0.2', port: ownPort, receive: false });
  const from = new Station('127.0.0.1', ownPort);
  try {
    port.addLocal(deaf);
    from.add({ peer: from.peer('127.0.0.2', ownPort) });
    expect(from.flush().status).toEqual([0]);
    expect(port.receive(new Uint8Array(65_536), new Uint32Array(12), new Uint8Array(16), 1)).toBe(0);
  } finally {
    port.close();
    deaf.close();
    from.close();
  }
});
