/** Lives of connections, second half (test/sim-life.test.ts says how to run one again): numbers, attributes, READs. */

import { testLives } from './sim/lives.ts';

if (process.env.ROCE_SIM_LIFE === undefined) {
  testLives('wraps');
  testLives('draining');
  testLives('reads');
}
