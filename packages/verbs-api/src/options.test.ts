/** Every public call refuses unknown options and values, by name, with a RoceError. */
import { constants } from 'node:buffer';
import { MemoryNetwork } from '@node-roce/link';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { openPair, openSide, type Pair, type Side } from '../testing/pair.ts';
import {
  type CompletionQueue,
  completionError,
  openDevice,
  type ProtectionDomain,
  type QueuePair,
  RoceError,
  type SendWr,
} from './index.ts';
import { nearest } from './options.ts';

let pair: Pair;
let a: Side;
beforeAll(async () => {
  pair = await openPair();
  a = pair.a;
});
afterAll(() => pair[Symbol.asyncDispose]());

/** The error of a call that throws or rejects. */
async function refusal(call: () => unknown): Promise<RoceError> {
  try {
    await call();
  } catch (error) {
    expect(error).toBeInstanceOf(RoceError);
    return error as RoceError;
  }
  throw new Error('the call was taken');
}

type Anything = Record<string, unknown>;
const post = (wr: unknown) => () => a.qp.postSend(wr as SendWr);
const send = (more: Anything) => () => post({ opcode: 'SEND', sgList: [{ mr: a.mr, length: 4 }], ...more })();
const link = () => new MemoryNetwork().link('10.0.0.9');
const open = (more: unknown) => () => openDevice(more as never);
const register = (options: unknown) => () => a.pd.registerMr(new Uint8Array(8), options as never);
const createQp = (init: unknown) => () => a.pd.createQp(init as never);
const modify = (attr: unknown) => () => a.qp.modify(attr as never);
const connect =
  (...args: unknown[]) =>
  () =>
    (a.qp.connect as (...all: unknown[]) => unknown)(...args);
const peer = { qpNum: 1, psn: 1, gid: '10.0.0.2' };

describe('names that do not exist are refused with the nearest right one', () => {
  test.each<[string, () => unknown, attribute: string, expected: string]>([
    ['signalled', send({ signalled: true }), 'signalled', 'signaled'],
    ['a name like no other', post({ opcode: 'SEND', checksummed: 1 }), 'checksummed', 'wrId, opcode, sgList'],
    ['sglist with elements', post({ opcode: 'SEND', sglist: [1] }), 'sglist', 'sgList'],
    ['imm_data', post({ opcode: 'SEND_WITH_IMM', imm_data: 1 }), 'imm_data', 'immData'],
    [
      'an offest in an element',
      () => send({ sgList: [{ mr: a.mr, offest: 4 }] })(),
      'sgList[0].offest',
      'offset',
    ],
    ['wr_id in a receive', () => a.qp.postRecv({ wr_id: 1 } as never), 'wr_id', 'wrId'],
    ['trcae', open({ link: link(), trcae: 'x' }), 'trcae', 'trace'],
    ['a limit', open({ link: link(), limits: { maxQqp: 2 } }), 'limits.maxQqp', 'maxQp'],
    ['a limit one level up', open({ link: link(), maxQp: 2 }), 'maxQp', 'limits: { maxQp }'],
    ['a fault', open({ link: link(), faults: { los: 0.1 } }), 'faults.los', 'loss'],
    [
      'a controller',
      open({ link: link(), congestion: { controler: 'dcqcn' } }),
      'congestion.controler',
      'controller',
    ],
    [
      'a parameter of DCQCN one level up',
      open({ link: link(), rpgAiRate: 5 }),
      'rpgAiRate',
      'congestion: { rpgAiRate }',
    ],
    [
      'a parameter of a queue pair’s DCQCN',
      () => createQp({ sendCq: a.cq, congestion: { rpgAirate: 5 } })(),
      'congestion.rpgAirate',
      'rpgAiRate',
    ],
    ['an access flag', register({ access: { remotewrite: true } }), 'access.remotewrite', 'remoteWrite'],
    [
      'an access flag one level up',
      register({ remoteWrite: true }),
      'remoteWrite',
      'access: { remoteWrite }',
    ],
    ['retrycnt', connect(peer, { retrycnt: 3 }), 'retrycnt', 'retryCnt'],
    ['a size', () => createQp({ sendCq: a.cq, cap: { maxSendWR: 4 } })(), 'cap.maxSendWR', 'maxSendWr'],
    [
      'a size one level up',
      () => createQp({ sendCq: a.cq, maxSendWr: 4 })(),
      'maxSendWr',
      'cap: { maxSendWr }',
    ],
    ['recieveCq', () => createQp({ sendCq: a.cq, recieveCq: a.cq })(), 'recieveCq', 'recvCq'],
    ['cq', () => createQp({ cq: a.cq })(), 'cq', 'sendCq'],
    ['qp_state', modify({ qp_state: 'RTS' }), 'qp_state', 'qpState'],
    ['state', modify({ state: 'RTS' }), 'state', 'qpState'],
    ['a route one level up', modify({ qpState: 'RTR', dgid: 1 }), 'dgid', 'ahAttr.grh: { dgid }'],
    ['maxwr', () => a.pd.createSrq({ maxwr: 4 } as never), 'maxwr', 'maxWr'],
    ['address of a handle', () => a.pd.createAh({ address: '10.0.0.2' } as never), 'address', 'gid'],
    ['singal', () => a.cq.next({ singal: 1 } as never), 'singal', 'signal'],
    ['solicited', () => a.cq.requestNotify({ solicited: true } as never), 'solicited', 'solicitedOnly'],
    ['qKey', () => a.qp.toInit({ qKey: 1 } as never), 'qKey', 'qkey'],
    ['a query of qpstate', () => a.qp.query(['qpstate' as never]), 'mask', 'qpState'],
  ])('%s', async (_name, call, attribute, expected) => {
    const error = await refusal(call);
    expect([error.attribute, error.code, error.errno]).toEqual([
      attribute,
      'ERR_ROCE_INVALID_ATTRIBUTE',
      'EINVAL',
    ]);
    expect(error.expected).toContain(expected);
    expect(error.message.startsWith(`${attribute}: `)).toBe(true);
  });

  test('nearest: case, exchanged letters, one missing; nothing for what is far', () => {
    const names = ['signaled', 'sgList', 'solicited'];
    expect(
      ['SIGNALED', 'signlaed', 'signald', 'sg_list', 'wholly else'].map((name) => nearest(name, names)),
    ).toEqual(['signaled', 'signaled', 'signaled', 'sgList', undefined]);
  });
});

describe('members that an operation does not have', () => {
  const mr = () => ({ mr: a.mr, length: 8 });
  test.each<[string, () => unknown, attribute: string, expected: RegExp]>([
    ['SEND with remote', () => send({ remote: a.mr.remote() })(), 'remote', /RDMA_WRITE, .*RDMA_READ/],
    ['SEND with immData', send({ immData: 7 }), 'immData', /RDMA_WRITE_WITH_IMM, SEND_WITH_IMM/],
    [
      'READ with inline',
      () => post({ opcode: 'RDMA_READ', inline: true, sgList: [mr()], remote: a.mr.remote() })(),
      'inline',
      /SEND/,
    ],
    [
      'WRITE with a swap',
      () => post({ opcode: 'RDMA_WRITE', sgList: [mr()], remote: a.mr.remote(), swap: 1n })(),
      'swap',
      /ATOMIC_CMP_AND_SWP/,
    ],
    [
      'a receive with signaled',
      () => a.qp.postRecv({ signaled: true } as never),
      'signaled',
      /wrId|RDMA_WRITE/,
    ],
  ])('%s', async (_name, call, attribute, expected) => {
    const error = await refusal(call);
    expect(error.attribute).toBe(attribute);
    expect(error.expected).toMatch(expected);
  });

  test('that are undefined, false or empty count as absent', () => {
    const none = { immData: undefined, solicited: undefined, ud: undefined, fence: false, remote: undefined };
    expect(send({ ...none })).not.toThrow();
    expect(post({ opcode: 'RDMA_WRITE', remote: a.mr.remote(), solicited: false })).not.toThrow();
  });
});

describe('wrong types and missing members name attribute and expectation', () => {
  const write = (remote: unknown) => post({ opcode: 'RDMA_WRITE', remote });
  const atomic = (more: Anything) => () =>
    post({
      opcode: 'ATOMIC_CMP_AND_SWP',
      sgList: [{ mr: a.mr, length: 8 }],
      remote: a.mr.remote(),
      ...more,
    })();
  const createAh = (init: unknown) => () => a.pd.createAh(init as never);
  test.each<[string, () => unknown, attribute: string, expected: string]>([
    ['openDevice()', open(undefined), 'options', 'an object with address'],
    ['a port as a string', open({ address: '127.0.0.1', port: '4791' }), 'port', 'a whole number'],
    ['an unknown engine', open({ link: link(), engine: 'thread' }), 'engine', 'inline, worker'],
    ['an unknown link kind', open({ address: '127.0.0.1', link: 'raw' }), 'link', 'auto, udp, dgram'],
    ['a larger limit', open({ link: link(), limits: { maxSge: 64 } }), 'limits.maxSge', '0 … 32'],
    ['credits: 1', open({ link: link(), credits: 1 }), 'credits', 'true or false'],
    ['an object in place of a signal', open({ link: link(), signal: {} }), 'signal', 'an AbortSignal'],
    ['createQp()', createQp(undefined), 'options', 'an object with type, sendCq'],
    ['createQp without a queue', createQp({}), 'sendCq', 'the result of device.createCq'],
    ['text in place of a queue', createQp({ sendCq: 'cq' }), 'sendCq', 'the result of device.createCq'],
    ['a type of queue pair', () => createQp({ sendCq: a.cq, type: 'XRC' })(), 'type', 'RC, UC, UD, GSI'],
    ['createCq of text', () => a.device.createCq('16' as never), 'cqe', 'a whole number'],
    ['access: null', register({ access: null }), 'access', 'an object with localWrite'],
    ['access: true', register({ access: true }), 'access', 'an object with localWrite'],
    ['access by a name', register({ access: 'remoteWrite' }), 'access', 'an object with localWrite'],
    ['access: 1.5', register({ access: 1.5 }), 'access', 'an object with localWrite'],
    ['iova as a number', register({ iova: 4096 }), 'iova', 'a bigint'],
    ['text in place of memory', () => a.pd.registerMr('memory' as never), 'memory', 'a buffer'],
    ['createAh({})', createAh({}), 'gid', 'an IP address'],
    ['createAh()', createAh(undefined), 'options', 'an object with gid'],
    ['postRecv()', () => a.qp.postRecv(undefined as never), 'wr', 'a receive'],
    ['postSend()', post(undefined), 'wr', 'a send request'],
    ['postSend([null])', post([null]), 'wr', 'a send request'],
    ['opcode 0', post({ opcode: 0 }), 'opcode', 'SEND'],
    ['sgList that is no list', send({ sgList: { mr: 1 } }), 'sgList', 'a list'],
    ['an element that is a number', send({ sgList: [4] }), 'sgList[0]', 'a Uint8Array'],
    ['an inline element that is a number', send({ inline: true, sgList: [4] }), 'sgList[0]', 'a Uint8Array'],
    ['wrId as text', send({ wrId: 'a' }), 'wrId', 'a bigint'],
    ['signaled: 1', send({ signaled: 1 }), 'signaled', 'true or false'],
    ['a WRITE without remote', write(undefined), 'remote', '{ addr, rkey }'],
    [
      'an address as text',
      write({ addr: '4096', rkey: 1 }),
      'remote.addr',
      'a bigint, as mr.remote() gives it',
    ],
    ['a key that is missing', write({ addr: 0n }), 'remote.rkey', '0 … 2^32'],
    ['an operand as text', atomic({ compareAdd: '0', swap: 1n }), 'compareAdd', 'a bigint, or an integer'],
    ['an operand that is missing', atomic({ compareAdd: 0n }), 'swap', 'a bigint, or an integer'],
    ['a negative operand', atomic({ compareAdd: -1, swap: 1n }), 'compareAdd', 'a bigint, or an integer'],
    ['poll(-1)', () => a.cq.poll(-1), 'max', 'a whole number'],
    ['pollInto()', () => a.cq.pollInto(undefined as never), 'into', 'a list of WorkCompletion'],
    ['connect()', connect(), 'remote', 'an object with qpNum'],
    ['connect with a QPN as text', connect({ ...peer, qpNum: '1' }), 'remote.qpNum', 'a whole number'],
    ['modify()', modify(undefined), 'options', 'an object with qpState'],
    ['bytes beyond the region', () => a.mr.bytes(65_536, 1), 'offset', "the region's 65536 bytes"],
    ['remote of a negative offset', () => a.mr.remote(-1), 'offset', 'a whole number'],
    ['a window of nothing', () => a.qp.bindMw(undefined as never, undefined), 'mw', 'a window of type 1'],
    ['BIND_MW without a window', post({ opcode: 'BIND_MW', bind: {} }), 'bind.mw', 'a window of type 2'],
  ])('%s', async (_name, call, attribute, expected) => {
    const error = await refusal(call);
    expect([error.attribute, error.errno]).toEqual([attribute, 'EINVAL']);
    expect(`${error.expected}`).toContain(expected);
  });

  test('operands may be numbers', async () => {
    await using fresh = await openPair();
    const { a, b } = fresh;
    const target = await b.pd.registerMr(new Uint8Array(8), { access: { remoteAtomic: true } });
    const local = await a.pd.registerMr(new Uint8Array(8));
    const common = { signaled: true, sgList: [{ mr: local }], remote: target.remote() };
    a.qp.postSend({ opcode: 'ATOMIC_CMP_AND_SWP', ...common, compareAdd: 0, swap: 2 ** 40 + 1 });
    a.qp.postSend({ opcode: 'ATOMIC_FETCH_AND_ADD', ...common, compareAdd: 2 });
    for (let i = 0; i < 2; i++) expect((await a.cq.next()).status).toBe('SUCCESS');
    expect(new DataView(target.buffer).getBigUint64(0, true)).toBe(2n ** 40n + 3n);
  });
});

test.each([0, 65_536])('port %i of a device is refused by name', async (port) => {
  await expect(openDevice({ address: '127.0.0.1', port })).rejects.toMatchObject({
    code: 'ERR_ROCE_INVALID_ATTRIBUTE',
    attribute: 'port',
    expected: 'a whole number of 1 … 65535',
  });
});

test('a trace into a folder that does not exist is a RoceError', async () => {
  const error = await refusal(() => openDevice({ link: link(), trace: '/nonexistent/x.pcapng' }));
  expect(error).toMatchObject({ code: 'ERR_ROCE_TRACE', errno: 'ENOENT', attribute: 'trace' });
});

test('a trace that can’t be written to the end is the same', async () => {
  const device = await openDevice({ link: link(), trace: '/dev/full' });
  const error = await refusal(() => device.close());
  expect(error).toMatchObject({ code: 'ERR_ROCE_TRACE', errno: 'EIO', attribute: 'trace' });
  expect(error.cause).toMatchObject({ code: 'ENOSPC' });
});

test('a buffer larger than the largest view is refused by name, and a query states how large regions are', async () => {
  await using device = await openDevice({ link: link() });
  const pd = await device.allocPd();
  const { MAX_LENGTH } = constants;
  expect(device.query().maxMrSize).toBe(Math.min(2 ** 40, MAX_LENGTH));
  if (MAX_LENGTH > 2 ** 33) return; // Before Node 22, 4 GiB.
  const buffer = new ArrayBuffer(MAX_LENGTH + 8192); // Never touched: it takes no memory.
  for (const memory of [buffer, new Uint8Array(buffer, 0, 64)])
    expect(await refusal(() => pd.registerMr(memory))).toMatchObject({
      errno: 'EINVAL',
      attribute: 'memory',
    });
});

test('a device has as many listeners of events as the program wants, without a warning', async () => {
  const warn = vi.spyOn(process, 'emitWarning').mockImplementation(() => {});
  await using device = await openDevice({ link: link() });
  for (let i = 0; i < 20; i++) device.onEvent(() => {});
  expect(warn).not.toHaveBeenCalled();
  warn.mockRestore();
});

// Calls that must not compile: each line here has to be an error.
export function doesNotCompile(qp: QueuePair, pd: ProtectionDomain, cq: CompletionQueue) {
  // @ts-expect-error a WRITE has a remote address
  qp.postSend({ opcode: 'RDMA_WRITE', sgList: [] });
  // @ts-expect-error a SEND has none
  qp.postSend({ opcode: 'SEND', remote: { addr: 0n, rkey: 0 } });
  // @ts-expect-error SEND_WITH_IMM has immediate data
  qp.postSend({ opcode: 'SEND_WITH_IMM' });
  // @ts-expect-error a compare-and-swap has operands
  qp.postSend({ opcode: 'ATOMIC_CMP_AND_SWP', sgList: [], remote: { addr: 0n, rkey: 0 } });
  // @ts-expect-error a READ can't be inline
  qp.postSend({ opcode: 'RDMA_READ', inline: true, remote: { addr: 0n, rkey: 0 } });
  // @ts-expect-error a queue pair needs a completion queue
  void pd.createQp({});
  // @ts-expect-error one address, one interface or a link
  void openDevice({});
  return [cq, completionError];
}

test('a second context is opened by the options of no one', async () => {
  const side = await openSide(new MemoryNetwork(), '10.0.0.1');
  expect((await refusal(() => side.device.openContext({ address: 'x' } as never))).attribute).toBe('address');
  await side.device.close();
});
