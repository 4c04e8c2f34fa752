import { expect, test } from 'vitest';
import { AffiliatedEvents } from './event-queue.ts';
import { Registry } from './registry.ts';

function taken(): AffiliatedEvents {
  const events = new AffiliatedEvents();
  events.take();
  return events;
}

test('an object that leaves waits until its events are acknowledged, or the device has ended', async () => {
  const registry = new Registry<object>(() => {});
  const events = taken();
  const leaving = [registry.leave(1, [events]), registry.leave(2, [taken()])];
  events.acknowledge();
  await leaving[0];
  registry.end();
  await leaving[1];
});

test('one whose device ended before the answer to its destruction does not wait', async () => {
  const registry = new Registry<object>(() => {});
  registry.end();
  const events = taken();
  await registry.leave(1, [events]);
  expect(events.pending).toBe(1);
});
