/** Replies wait for no one's requests, not even for those of a service without a window. */
import { bthOpcode, Opcode } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { Pair } from '../testing/pair.ts';

const MIB = 1 << 20;

test('an ACK leaves with the next batch while an unreliable connection sends as much as it can', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(MIB));
  const remote = right.register(new ArrayBuffer(MIB));
  // The window of the reliable connection is of no account: right writes to left.
  right.post({ opcode: 'RDMA_WRITE', sge: [{ mr: remote, length: 8 }], remote: local });
  pair.run(9);
  pair.now = 10; // It arrives with the next `run`, before left sends.
  for (const side of [left, right]) side.createQp({}, { type: 'UC' });
  pair.connect();
  for (let i = 0; i < 4; i++) {
    left.post({ opcode: 'RDMA_WRITE', sge: [{ mr: local, length: MIB }], remote });
  }
  const before = pair.sent.length;
  pair.run(5);
  const sent = pair.sent.slice(before).filter(({ from }) => from === left);
  expect(sent).toHaveLength(4 * 1024 + 1);
  const at = sent.findIndex(({ packet }) => bthOpcode(packet, 0) === Opcode.RC_ACKNOWLEDGE);
  expect(at).toBeGreaterThanOrEqual(0);
  expect(at).toBeLessThan(256);
});

test('the answer of a program leaves before the ACK of the message that it answers', () => {
  const pair = new Pair();
  const { left, right } = pair;
  const local = left.register(new ArrayBuffer(64));
  const remote = right.register(new ArrayBuffer(64));
  right.postRecv(1, [{ mr: remote, length: 64 }]);
  left.postRecv(1, [{ mr: local, length: 64 }]);
  left.post({ opcode: 'SEND', sge: [{ mr: local, length: 8 }] });
  pair.fault = (packet) => {
    // Posted before the receiver's next `transmit`, as by a program that polls in between.
    if (packet.length === 20 && pair.sent.length === 1) {
      right.post({ opcode: 'SEND', sge: [{ mr: remote, length: 8 }] });
    }
    return [{ packet, delay: 0 }];
  };
  pair.run(15);
  const answers = pair.sent.filter(({ from }) => from === right).map(({ packet }) => bthOpcode(packet, 0));
  expect(answers.slice(-2)).toEqual([Opcode.RC_SEND_ONLY, Opcode.RC_ACKNOWLEDGE]);
});
