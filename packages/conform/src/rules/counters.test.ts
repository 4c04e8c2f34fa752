/** Counters of a port that is not the tester's alone. */
import { expect, test } from 'vitest';
import { play } from '../run.ts';
import { modelBench } from '../virtual/bench.ts';
import { rules } from './all.ts';

const [COUNTERS] = rules('CNT-01');

test('counters that move while the tester is silent say nothing about the device', async () => {
  const bench = modelBench();
  let others = 0;
  const counters = async () => {
    const counts = await bench.device.counters?.();
    return { ...counts, duplicate_request: (counts?.duplicate_request ?? 0) + others++ };
  };
  const { verdict, why } = await play(COUNTERS, { ...bench, device: { ...bench.device, counters } });
  expect([verdict, ...why]).toEqual([
    'not testable',
    'duplicate_request counts while the tester is silent: another program uses the device',
  ]);
});

test.each([2, 3])(
  'an agent that leaves out a counter in answer %i is blamed, not the device',
  async (time) => {
    const bench = modelBench();
    let asked = 0;
    const counters = async () => {
      const { duplicate_request, ...others } = (await bench.device.counters?.()) ?? {};
      return ++asked === time ? others : { ...others, duplicate_request };
    };
    const { verdict, why } = await play(COUNTERS, { ...bench, device: { ...bench.device, counters } });
    expect([verdict, ...why]).toEqual([
      'broken',
      'the agent answers counters without duplicate_request, which it had before',
    ]);
  },
);
