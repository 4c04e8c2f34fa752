/** Services at the connection manager that are not there, or go: no rule waits for them again and again. */
import { expect, test } from 'vitest';
import { BrokenDevice, type Mutant } from '../testing/broken-device.ts';
import { rules } from './rules/all.ts';
import { play } from './run.ts';
import { adapterBench, MODEL_OPTIONS } from './virtual/bench.ts';
import { SERVICE_ID } from './virtual/listening-model.ts';

/** A bench whose connection manager hears nothing once `isThere` is false. */
function benchWith(service: { isThere: boolean }) {
  const mutant: Mutant = { seenBy: [], hearMad: (mad) => (service.isThere ? mad : undefined) };
  const make = (options: ConstructorParameters<typeof BrokenDevice>[0]) => new BrokenDevice(options, mutant);
  return adapterBench((options) => make({ ...options, ...MODEL_OPTIONS }), { serviceId: SERVICE_ID });
}

test('nobody listens: not testable, and nobody is asked a second time', async () => {
  const bench = benchWith({ isThere: false });
  const [first, second] = [await play(rules('CM-01')[0], bench), await play(rules('CM-02')[0], bench)];
  expect(first).toMatchObject({
    verdict: 'not testable',
    why: [expect.stringMatching(/^nobody listens at the connection manager: run rping -s -P there/)],
  });
  expect(first.time).toBeLessThan(10_000);
  expect(second).toMatchObject({ verdict: 'not testable', time: 0, entries: [] });
});

test('a service that goes: broken, after a time that has an end', async () => {
  const service = { isThere: true };
  const bench = benchWith(service);
  expect((await play(rules('CM-01')[0], bench)).verdict).toBe('pass');
  service.isThere = false;
  const { verdict, why, time } = await play(rules('CM-02')[0], bench);
  expect([verdict, why]).toEqual(['broken', ['the service at the connection manager is gone']]);
  expect(time).toBeLessThan(60_000);
});

test('a service that is started again meanwhile is waited for', async () => {
  const service = { isThere: true };
  const bench = benchWith(service);
  await play(rules('CM-17')[0], bench);
  service.isThere = false;
  const { wait } = bench.line;
  const start = bench.line.now();
  bench.line.wait = (done, ms) => {
    service.isThere ||= bench.line.now() - start > 5000;
    return wait.call(bench.line, done, ms);
  };
  expect((await play(rules('CM-01')[0], bench)).verdict).toBe('pass');
});
