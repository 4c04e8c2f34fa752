/** One operation from here to the guest or from the guest to here, and the results that both sides have to see. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { QueuePair, SendWr } from '@node-roce/verbs-api';
import { expect } from 'vitest';
import type { Ends, Guarded, QueuePairs } from './connect.ts';
import { sha256 } from './connect.ts';

export type Operation = 'SEND' | 'SEND_WITH_IMM' | 'RDMA_WRITE' | 'RDMA_WRITE_WITH_IMM';
export const OPERATIONS: readonly Operation[] = [
  'SEND',
  'SEND_WITH_IMM',
  'RDMA_WRITE',
  'RDMA_WRITE_WITH_IMM',
];

/** A region in the guest. */
export type TheirRegion = Awaited<ReturnType<Ends['agent']['mr']>>;

/** Asks again until it is so, for so many milliseconds. */
export async function eventually(
  check: () => boolean | Promise<boolean>,
  what: string,
  patience = 2000,
): Promise<void> {
  for (const end = performance.now() + patience; performance.now() < end; await sleep(5)) {
    if (await check()) return;
  }
  throw new Error(`not within ${patience} ms: ${what}`);
}

const writes = (operation: Operation) => operation.startsWith('RDMA_WRITE');
const immediate = (operation: Operation) => operation.endsWith('WITH_IMM');

interface Transfer {
  operation: Operation;
  /** Bytes, from the start of both regions. */
  size: number;
  /** The initial contents of the guest's memory: to send, or for nothing to be there that looks right. */
  seed: number;
  /** The destination instead, for operations that have no address of their own (zero bytes). */
  remote?: { addr: bigint; rkey: number };
}

/** We send, the guest receives. */
export async function oursToTheirs(
  { agent, cq }: Ends,
  { qp, theirQp }: QueuePairs,
  { from, to }: { from: Guarded; to: TheirRegion },
  { operation, size, seed, remote }: Transfer,
): Promise<void> {
  await agent.call('fill', { mr: to.mr, seed });
  const imm = 0x1000_0000 + seed;
  const receives = !writes(operation) || immediate(operation);
  if (receives) {
    const sge = writes(operation) || size === 0 ? undefined : `${to.mr}:0:${size}`;
    await agent.call('post_recv', { qp: theirQp, wr_id: seed, sge });
  }
  const wr = {
    wrId: seed,
    opcode: operation,
    signaled: true,
    sgList: size === 0 ? [] : [{ mr: from.mr, length: size }],
    ...(immediate(operation) ? { immData: imm } : {}),
    ...(writes(operation) ? { remote: remote ?? { addr: to.address, rkey: to.rkey } } : {}),
  };
  qp.postSend(wr as SendWr);
  const opcode = writes(operation) ? 'RDMA_WRITE' : 'SEND';
  expect(await cq.next()).toMatchObject({ wrId: BigInt(seed), status: 'SUCCESS', opcode });
  const expected = sha256(from.bytes.subarray(0, size));
  if (receives) {
    const received = writes(operation) ? 'RECV_RDMA_WITH_IMM' : 'RECV';
    const completion = { wrId: seed, status: 0, opcode: received, byteLen: size };
    expect(await agent.poll()).toMatchObject([{ ...completion, ...(immediate(operation) ? { imm } : {}) }]);
    expect(await agent.sha256(to.mr, 0, size)).toBe(expected);
  } else {
    await eventually(
      async () => (await agent.sha256(to.mr, 0, size)) === expected,
      `${operation} of ${size}`,
    );
  }
}

/** The guest sends, we receive. */
export async function theirsToOurs(
  { agent, cq }: Ends,
  { qp, theirQp }: QueuePairs,
  { from, to }: { from: TheirRegion; to: Guarded },
  { operation, size, seed, remote }: Transfer,
): Promise<void> {
  await agent.call('fill', { mr: from.mr, seed });
  to.bytes.fill(0);
  const imm = 0x1000_0000 + seed;
  const receives = !writes(operation) || immediate(operation);
  if (receives) postReceive(qp, seed, writes(operation) || size === 0 ? undefined : to, size);
  await agent.call('post_send', {
    qp: theirQp,
    wr_id: seed,
    opcode: operation,
    sge: size === 0 ? undefined : `${from.mr}:0:${size}`,
    imm: immediate(operation) ? imm : undefined,
    ...(writes(operation)
      ? { remote_addr: remote?.addr ?? to.mr.addr, rkey: remote?.rkey ?? to.mr.rkey }
      : {}),
  });
  expect(await agent.poll()).toMatchObject([{ wrId: seed, status: 0 }]);
  const expected = await agent.sha256(from.mr, 0, size);
  if (receives) {
    const wc = await cq.next();
    expect([wc.wrIdNumber, wc.status, wc.opcode, wc.byteLen, wc.immData]).toEqual([
      seed,
      'SUCCESS',
      writes(operation) ? 'RECV_RDMA_WITH_IMM' : 'RECV',
      size,
      immediate(operation) ? imm : undefined,
    ]);
    expect(sha256(to.bytes.subarray(0, size))).toBe(expected);
  } else {
    await eventually(() => sha256(to.bytes.subarray(0, size)) === expected, `${operation} of ${size}`);
  }
  expect(to.guardsIntact).toBe(true);
}

function postReceive(qp: QueuePair, wrId: number, to: Guarded | undefined, length: number): void {
  qp.postRecv({ wrId, sgList: to ? [{ mr: to.mr, length }] : [] });
}
