/** A broken promise of the engine itself: it throws where the adapter was made so; in production it ends the one queue pair. */
import { expect, test } from 'vitest';
import { QpStateCode, RoceBug } from '../src/index.ts';
import { ByHand } from '../testing/by-hand.ts';

/** A queue pair whose ring has another state than the queue pair: nothing in the engine can cause that. */
function broken(throwBugs: boolean) {
  const { side } = new ByHand({}, { throwBugs });
  const { adapter, qp } = side;
  side.sq.state = QpStateCode.INIT;
  return { side, adapter, state: () => adapter.queryQp(qp.qpn).attr.qpState };
}

test('throws in tests', () => {
  const { adapter, side, state } = broken(true);
  expect(() => adapter.checkInvariants()).toThrow(RoceBug);
  expect(() => adapter.checkInvariants()).toThrow(`QP ${side.qp.qpn} in RTS: the rings show another state`);
  expect(state()).toBe('RTS');
  expect(adapter.counters().bugs).toBe(0);
});

test('is counted and fails the queue pair in production, once', () => {
  const { adapter, side, state } = broken(false);
  adapter.checkInvariants();
  expect(state()).toBe('ERR');
  expect(adapter.counters().bugs).toBe(1);
  expect(side.events).toEqual([{ type: 'QP_FATAL', qpn: side.qp.qpn }]);
  adapter.checkInvariants();
  expect(adapter.counters().bugs).toBe(1);
});
