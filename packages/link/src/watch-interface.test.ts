/** The watch of an interface; its events need an interface that can be changed: test/sockets/port-events.test.ts. */
import { afterEach, expect, test, vi } from 'vitest';
import type { NetworkInterface } from './interfaces.ts';
import { type InterfaceEvent, watchInterface } from './watch-interface.ts';

afterEach(() => {
  vi.doUnmock('@node-roce/dgram-native');
  vi.doUnmock('./interfaces.ts');
  vi.doUnmock('node:fs');
  vi.resetModules();
  vi.useRealTimers();
});

test('by netlink where the addon is; by polling if that is asked for, or where there is no such interface', async () => {
  for (const [name, options, how] of [
    ['lo', {}, 'netlink'],
    ['lo', { how: 'polling' }, 'polling'],
    ['no-such-nic', {}, 'polling'],
  ] as const) {
    const watch = await watchInterface(name, () => {}, options);
    expect(watch.how).toBe(how);
    watch.close();
  }
});

test('a look that fails after the watch has begun ends the watch', async () => {
  const closed = vi.fn();
  class InterfaceWatcher {
    close = closed;
  }
  vi.doMock('@node-roce/dgram-native', () => ({ InterfaceWatcher }));
  const listInterfaces = vi.fn(() => {
    throw new Error('no descriptors');
  });
  vi.doMock('./interfaces.ts', () => ({ listInterfaces }));
  const fresh = await import('./watch-interface.ts');
  await expect(fresh.watchInterface('nic0', () => {})).rejects.toThrow('no descriptors');
  expect(closed).toHaveBeenCalledOnce();
});

test('without the addon, by a look every second; each difference is reported once', async () => {
  vi.doMock('@node-roce/dgram-native', () => {
    throw new Error('not built');
  });
  const shown = (...addresses: string[]) =>
    [{ name: 'nic0', up: true, addresses: addresses.map((address) => ({ address })) }] as NetworkInterface[];
  let list = shown('10.0.0.1', 'fe80::1');
  vi.doMock('./interfaces.ts', () => ({ listInterfaces: () => list }));
  vi.useFakeTimers();
  const fresh = await import('./watch-interface.ts');
  const told: InterfaceEvent[] = [];
  const watch = await fresh.watchInterface('nic0', (event) => told.push(event));
  expect(watch.how).toBe('polling');
  const after = (interfaces: NetworkInterface[]) => {
    list = interfaces;
    vi.advanceTimersByTime(2000);
    return told.splice(0);
  };
  expect(after(list)).toEqual([]);
  expect(after(shown('10.0.0.1', '10.0.0.2'))).toEqual([
    { type: 'address-removed', address: 'fe80::1' },
    { type: 'address-added', address: '10.0.0.2' },
  ]);
  // An interface that is down is not shown, nor are the addresses that it may have.
  expect(after([])).toEqual([{ type: 'down' }]);
  expect(after(shown('10.0.0.2'))).toEqual([
    { type: 'up' },
    { type: 'address-removed', address: '10.0.0.1' },
  ]);
  watch.close();
  expect(after([])).toEqual([]);
});

test('an interface that comes up in the middle of a look has lost no address', async () => {
  let list = [{ name: 'nic0', up: true, addresses: [{ address: '10.0.0.1' }] }] as NetworkInterface[];
  let state = 'up';
  // What happens behind the list of interfaces, and before the state is read.
  let meanwhile = () => {};
  vi.doMock('./interfaces.ts', () => ({
    listInterfaces: () => {
      const seen = list;
      meanwhile();
      return seen;
    },
  }));
  vi.doMock('node:fs', () => ({ readFileSync: () => `${state}\n` }));
  vi.useFakeTimers();
  const fresh = await import('./watch-interface.ts');
  const told: InterfaceEvent[] = [];
  const watch = await fresh.watchInterface('nic0', (event) => told.push(event), { how: 'polling' });
  const shown = list;
  [list, state] = [[], 'lowerlayerdown'];
  vi.advanceTimersByTime(1000);
  expect(told.splice(0)).toEqual([{ type: 'down' }]);
  meanwhile = () => {
    [list, state] = [shown, 'up'];
  };
  vi.advanceTimersByTime(2000);
  expect(told).toEqual([{ type: 'up' }]);
  watch.close();
});
