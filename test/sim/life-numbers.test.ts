/** Lives of connections, second half (test/sim/life.test.ts has the command that repeats one): numbers, attributes, READs. */
import { testLives } from './lives.ts';

if (process.env.ROCE_SIM_LIFE === undefined) {
  testLives('wraps');
  testLives('draining');
  testLives('reads');
}
