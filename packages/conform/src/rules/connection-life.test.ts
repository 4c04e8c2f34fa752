/** Rules of the connection manager while the tester is late. */
import { expect, test } from 'vitest';
import { play } from '../run.ts';
import { modelBench } from '../virtual/bench.ts';
import { rules } from './all.ts';

test('a SEND that the ACK timer of the device repeats, because the tester is late, is no RNR retry (CM-36)', async () => {
  const bench = modelBench();
  const { line } = bench;
  const wait = line.wait.bind(line);
  line.wait = async (done, ms) => {
    await wait(done, ms);
    await wait(() => false, 200);
  };
  const { verdict, why, ladder } = await play(rules('CM-36')[0], bench);
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('pass');
});
