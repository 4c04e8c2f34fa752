import { afterEach, expect, test, vi } from 'vitest';
import { ownPort } from '../../packages/link/testing/loopback.ts';
import { turns } from '../../packages/verbs-api/testing/clock.ts';
import { now, Port, Wake } from '../index.js';
import { Station } from './support.ts';

const open: { close(): void }[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

/** A port whose wakes can be waited for. */
function wakeable() {
  const events: number[] = [];
  let notify = () => {};
  const station = new Station('127.0.0.2', ownPort, {
    onWake: (bits) => {
      events.push(bits);
      notify();
    },
  });
  const from = new Station('127.0.0.1', ownPort);
  open.push(station, from);
  const peer = from.peer('127.0.0.2', ownPort);
  return {
    station,
    events,
    /** Sends one packet to it. */
    poke() {
      from.add({ peer });
      from.flush();
    },
    next: () =>
      new Promise<number>((done) => {
        notify = () => done(events.at(-1)!);
      }),
  };
}

test('wakes for a packet, again while it is not taken, and not after', async () => {
  const { station, events, poke, next } = wakeable();
  station.port.start();
  poke();
  expect(await next()).toBe(Wake.READABLE);
  expect(await next()).toBe(Wake.READABLE);
  expect(station.receive().length).toBe(1);
  const before = events.length;
  await turns();
  expect(events.length).toBeLessThanOrEqual(before + 1); // one poll may have been under way
});

test('no events after stop; start reports those that came meanwhile', async () => {
  const { station, events, poke, next } = wakeable();
  station.port.start();
  station.port.start();
  station.port.stop();
  poke();
  await turns();
  expect(events).toEqual([]);
  station.port.start();
  expect(await next()).toBe(Wake.READABLE);
});

test('the deadline: once, not early, moved, taken back', async () => {
  const { station, events, next } = wakeable();
  station.port.start();
  const t0 = now();
  station.port.setDeadline(5000);
  expect(await next()).toBe(Wake.TIMER);
  expect(now() - t0).toBeGreaterThanOrEqual(5000);
  await turns();
  expect(events).toEqual([Wake.TIMER]);

  // Another port's deadline comes after the one that was taken back.
  let notify = () => {};
  const later = new Port({ onWake: () => notify() });
  open.push(later);
  later.start();
  station.port.setDeadline(3000);
  station.port.setDeadline(Number.POSITIVE_INFINITY);
  later.setDeadline(5000);
  await new Promise<void>((resolve) => {
    notify = resolve;
  });
  await turns();
  expect(events).toEqual([Wake.TIMER]);

  for (const atOnce of [0, -5, 0.2]) {
    station.port.setDeadline(atOnce);
    expect(await next()).toBe(Wake.TIMER);
  }
});

test('a deadline set while stopped is kept', async () => {
  const { station, next } = wakeable();
  station.port.setDeadline(1000);
  for (const t0 = now(); now() - t0 < 2000; );
  station.port.start();
  expect(await next()).toBe(Wake.TIMER);
});

test('a closed port holds little', () => {
  const many = Array.from({ length: 200 }, () => {
    const port = new Port();
    port.close();
    return port;
  });
  const before = process.memoryUsage().rss;
  for (let i = 0; i < 2000; i++) {
    const port = new Port();
    port.close();
    many.push(port);
  }
  // While it is open it has tables and buffers of 400 kB.
  expect(process.memoryUsage().rss - before).toBeLessThan(100 * 2 ** 20);
  expect(many[0].stats().txPackets).toBe(0);
});

test('starting and stopping is cheap', () => {
  const { station } = wakeable();
  const before = process.cpuUsage();
  for (let i = 0; i < 10_000; i++) {
    station.port.start();
    station.port.stop();
  }
  const { user, system } = process.cpuUsage(before);
  expect((user + system) / 10_000).toBeLessThan(50); // microseconds of the processor
});

test('an exception in onWake is an uncaught one, and the port lives on', async () => {
  const port = new Port({
    onWake: () => {
      throw new Error('from onWake');
    },
  });
  open.push(port);
  const uncaught = vi.fn();
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  const caught = new Promise<void>((done) => {
    process.once('uncaughtException', (error) => {
      uncaught(error.message);
      done();
    });
  });
  port.start();
  port.setDeadline(0);
  await caught;
  for (const listener of others) process.on('uncaughtException', listener);
  expect(uncaught).toHaveBeenCalledWith('from onWake');
  port.setDeadline(Number.POSITIVE_INFINITY);
  port.stop();
});

test('close within onWake', async () => {
  let done = () => {};
  const closed = new Promise<void>((resolve) => {
    done = resolve;
  });
  const port = new Port({
    onWake() {
      this.close();
      done();
    },
  } as ConstructorParameters<typeof Port>[0] & ThisType<Port>);
  port.start();
  port.setDeadline(0);
  await closed;
  expect(() => port.start()).toThrow(expect.objectContaining({ code: 'ERR_ROCE_PORT_CLOSED' }));
});

test('now() is CLOCK_MONOTONIC in microseconds', () => {
  const [a, b, c] = [now(), Number(process.hrtime.bigint()) / 1000, now()];
  expect(b).toBeGreaterThanOrEqual(a - 1);
  expect(b).toBeLessThanOrEqual(c + 1);
});

test('receive and send write the time to the array of setClock', () => {
  const { station } = wakeable();
  const origin = now() - 1000;
  const port = new Port({ timeOrigin: origin });
  open.push(port);
  const { slab, slots, sources, capacity } = station.rx;
  const { headers, slots: toSend, fragments, regions } = station.tx;
  const time = new Float64Array(new SharedArrayBuffer(24));
  port.receive(slab, slots, sources, capacity);
  expect(time[0]).toBe(0);
  port.setClock(time);
  port.receive(slab, slots, sources, capacity);
  const received = time[0];
  expect(received).toBeGreaterThanOrEqual(1000);
  port.send(toSend, headers, fragments, 0, 0, regions.views, regions.shared);
  expect(time[0]).toBeGreaterThanOrEqual(received);
  expect(time[0]).toBeLessThanOrEqual(now() - origin);
  expect([...time.subarray(1)]).toEqual([1, 0]);
  const shared = new SharedArrayBuffer(8);
  // Memory that could be detached is refused, too.
  for (const wrong of [
    new Float64Array(1),
    new Float64Array(shared, 8),
    new Float32Array(shared),
    0,
    null,
    {},
  ]) {
    expect(() => port.setClock(wrong as Float64Array)).toThrow(TypeError);
  }
  expect(() => new Port({ timeOrigin: '0' as unknown as number })).toThrow(TypeError);
});
