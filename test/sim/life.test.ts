/**
 * Lives of connections (packages/sim/src/life): programs that make, use and end them over bad networks. The model against
 * itself, the engine against the model, and against itself. Each workload counts the events that it is for, and fails where
 * they were too rare.
 *
 * Again: ROCE_SIM_LIFE=workload,seed,a,b npx vitest run test/sim/life.test.ts; more of it: ROCE_SIM_SEEDS=200, and
 * ROCE_SIM_FIRST=101 for a slice.
 */
import { testLives, testReplay } from './lives.ts';

if (!testReplay()) {
  testLives('lifetimes');
  testLives('closing');
  testLives('rnr');
  testLives('unreliable');
}
