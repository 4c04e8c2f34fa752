/**
 * A receiver that ends its queue pair right after it polled a message: the message was delivered, so its sender hears of that. A
 * responder's ACK does not depend on what the program does next (IBTA vol 1 §9.7.5.1.1; §10.2.4.3 discards what is outstanding, not
 * what is done).
 */
import { beforeEach, describe, expect, test } from 'vitest';
import { pass, stopClock } from '../testing/clock.ts';
import { openPair, type Side } from '../testing/pair.ts';

beforeEach(stopClock);

const ENDS: [string, (side: Side) => Promise<unknown> | undefined][] = [
  ['closes its queue pair', ({ qp }) => qp.close()],
  ['resets its queue pair', ({ qp }) => qp.modify({ qpState: 'RESET' })],
  ['takes its queue pair to the error state', ({ qp }) => qp.modify({ qpState: 'ERR' })],
];

describe.each(ENDS)('a receiver that polls a message and at once %s', (_what, end) => {
  test('leaves the sender with SUCCESS', async () => {
    await using pair = await openPair({}, { timeout: 8, retryCnt: 1 });
    const { a, b } = pair;
    b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 64 }] });
    await pass(5);
    a.qp.postSend({ wrId: 2, opcode: 'SEND', sgList: [{ mr: a.mr, length: 64 }], signaled: true });
    a.cq.poll(); // Sends.
    expect(b.cq.poll()).toMatchObject([{ status: 'SUCCESS', wrIdNumber: 1 }]);
    await end(b);
    expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', wrIdNumber: 2 });
  });
});

test('a receiver that polls a message and at once closes its device leaves the sender with SUCCESS', async () => {
  await using pair = await openPair({}, { timeout: 8, retryCnt: 1 });
  const { a, b } = pair;
  b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 64 }] });
  await pass(5);
  a.qp.postSend({ wrId: 2, opcode: 'SEND', sgList: [{ mr: a.mr, length: 64 }], signaled: true });
  a.cq.poll();
  expect(b.cq.poll()).toHaveLength(1);
  await b.device.close();
  expect(await a.cq.next()).toMatchObject({ status: 'SUCCESS', wrIdNumber: 2 });
});

test('a responder that fails and at once closes its queue pair leaves the requester with the reason', async () => {
  await using pair = await openPair({}, { timeout: 8, retryCnt: 1 });
  const { a, b } = pair;
  b.qp.postRecv({ wrId: 1, sgList: [{ mr: b.mr, length: 8 }] });
  await pass(5);
  a.qp.postSend({ wrId: 2, opcode: 'SEND', sgList: [{ mr: a.mr, length: 64 }], signaled: true });
  a.cq.poll();
  expect(b.cq.poll()).toMatchObject([{ status: 'LOC_LEN_ERR', wrIdNumber: 1 }]);
  await b.qp.close();
  expect(await a.cq.next()).toMatchObject({ status: 'REM_INV_REQ_ERR', wrIdNumber: 2 });
});
