/** Every call refuses unknown options and values, by name, with a RoceError. */
import { EventEmitter } from 'node:events';
import { type Device, RoceError } from '@node-roce/verbs-api';
import { describe, expect, test } from 'vitest';
import { wrongErrorsWith } from '../../verbs-api/testing/wrong-errors.ts';
import { type Ends, openEnds } from '../testing/ends.ts';
import { CmId, connect, EventChannel, listen } from './index.ts';

const failureOf = async (call: () => unknown): Promise<unknown> => {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error('the call was taken');
};

describe('names the attribute and the expected value', () => {
  test.each<[string, (ends: Ends) => unknown, attribute: string, expected: string]>([
    [
      'a misspelt option of an id',
      () => new CmId({ trafficclass: 1 } as never),
      'trafficclass',
      'trafficClass',
    ],
    [
      'a device of the wrong type',
      () => new CmId({ device: {} as never }),
      'device',
      'a device (openDevice)',
    ],
    ['a port space', () => new CmId({ portSpace: 'SCTP' as never }), 'portSpace', 'TCP, UDP, IPOIB, IB'],
    ['intervals', () => new CmId({ timing: { maxRetries: 99 } }), 'timing.maxRetries', '0 … 15'],
    [
      'a misspelt interval',
      () => new CmId({ timing: { retries: 1 } as never }),
      'timing.retries',
      'maxRetries',
    ],
    ['a channel', () => new CmId({ channel: {} as never }), 'channel', 'an EventChannel'],
    ['a target', () => connect(5 as never), 'target', 'a string'],
    ['a target without a port', () => connect('10.0.0.2'), 'target', 'host:port'],
    [
      'keepAlve',
      ({ a }) => connect('10.0.0.2:7', { device: a, keepAlve: 1 } as never),
      'keepAlve',
      'keepAlive',
    ],
    ['no slots', ({ a }) => connect('10.0.0.2:7', { device: a, slots: 0 }), 'slots', '1 … 16384'],
    ['a source that is a name', ({ a }) => connect('x:7', { device: a, source: 'me' }), 'source', 'numeric'],
    ['listen()', () => listen(undefined as never), 'options', 'an object with device'],
    ['listen without a port', ({ b }) => listen({ device: b } as never), 'port', '0 … 65535'],
    ['listen at a host', ({ b }) => listen({ device: b, port: 0, host: 'x' } as never), 'host', 'address'],
    [
      'private data beyond the room of an answer',
      ({ b }) => listen({ device: b, port: 0, privateData: new Uint8Array(197) }),
      'privateData',
      '196 bytes at most',
    ],
    ['a signal', ({ b }) => listen({ device: b, port: 0, signal: {} as never }), 'signal', 'an AbortSignal'],
    [
      'an address that is a name',
      () => new CmId().bindAddr('me'),
      'address',
      'a numeric IPv4 or IPv6 address',
    ],
    ['no destination', () => new CmId().resolveAddr(undefined as never), 'options', 'an object with host'],
    ['a destination address', () => new CmId().resolveAddr({ address: 'x' } as never), 'address', 'host'],
    ['a port as text', () => new CmId().resolveAddr({ host: 'x', port: '7' as never }), 'port', '0 … 65535'],
    ['a domain', ({ a }) => new CmId({ device: a }).createQp({} as never, {} as never), 'pd', 'allocPd'],
    [
      'a group',
      () => new CmId({ portSpace: 'UDP' }).joinMulticast('10.0.0.1'),
      'group',
      'a multicast address',
    ],
    ['a reason', () => new CmId().reject(undefined, -1), 'reason', '0 … 65535'],
    ['retryCnt', () => new CmId().connect({ retryCnt: 3 } as never), 'retryCnt', 'retryCount'],
    [
      'private data as text',
      () => new CmId().accept({ privateData: 'x' as never }),
      'privateData',
      'a Uint8Array',
    ],
    ['a wait', () => new EventChannel().getEvent({ singal: 1 } as never), 'singal', 'signal'],
  ])('%s', async (_name, call, attribute, expected) => {
    await using ends = await openEnds();
    const error = (await failureOf(() => call(ends))) as RoceError;
    expect(error).toBeInstanceOf(RoceError);
    expect(error).toMatchObject({ code: 'ERR_ROCE_INVALID_ATTRIBUTE', errno: 'EINVAL', attribute });
    expect(`${error.expected}`).toContain(expected);
  });
});

/** Of each type, and objects whose members have a wrong one. */
const WRONG = [
  ...[undefined, null, 0, -1, 1.5, Number.NaN, 70_000, 'x', '', 'x:1', true, 1n, Symbol('wrong'), () => {}],
  ...[[], [null], {}, { a: 1 }, Object.create(null), new Uint8Array(1), new Uint8Array(400)],
  ...[{ signal: {} }, { device: {} }, { port: 1, device: {} }, { port: 1, address: 5 }, { channel: {} }],
  ...[{ privateData: 'x' }, { host: 5, port: 1 }, { source: 5 }, { timing: 5 }, { sendOnly: 5 }],
];
const wrongErrors = wrongErrorsWith(WRONG, 2);
/** A stream takes the messages of its connection. */
const SKIPPED = /^(constructor|destroy|close|push|connect|accept|stream|streams)$/;

function methodsOf(prototype: object): string[] {
  const above = Object.getPrototypeOf(prototype);
  const own = Object.entries(Object.getOwnPropertyDescriptors(prototype)).flatMap(([name, { value }]) =>
    typeof value === 'function' && !SKIPPED.test(name) ? [name] : [],
  );
  return above === Object.prototype || above === EventEmitter.prototype ? own : [...own, ...methodsOf(above)];
}

test('wrong values of any type give RoceErrors', async () => {
  await using ends = await openEnds();
  const listener = await listen({ port: 7, device: ends.b });
  const [connection] = await Promise.all([connect('10.0.0.2:7', { device: ends.a }), listener.accept()]);
  const objects = { connection, id: new CmId({ device: ends.a }), channel: new EventChannel() };
  const found: string[] = [];
  for (const [kind, object] of Object.entries(objects)) {
    const methods = methodsOf(Object.getPrototypeOf(object));
    expect(methods).not.toEqual([]);
    const calls = object as unknown as Record<string, (...args: unknown[]) => unknown>;
    for (const name of methods) {
      found.push(...(await wrongErrors(`${kind}.${name}`, (...args) => calls[name](...args))));
    }
  }
  const anew = async (method: 'stream' | 'streams') =>
    wrongErrors(method, (options) => {
      if (options === undefined || options === null || Array.isArray(options))
        connection[method](null as never);
      else connection[method]({ signal: 5, ...(options as object) } as never);
    });
  found.push(...(await anew('stream')), ...(await anew('streams')));
  found.push(...(await wrongErrors('new CmId', (options) => new CmId(options as never))));
  found.push(
    ...(await wrongErrors('connect', (target, options) => connect(target as never, options as never))),
  );
  found.push(...(await wrongErrors('listen', (options) => listen(options as never))));
  found.push(...(await wrongErrors('accept', (options) => listener.accept(options as never))));
  for (const method of ['connect', 'accept'] as const)
    found.push(...(await wrongErrors(method, (a, b) => new CmId()[method](a as never, b as never))));
  expect(found).toEqual([]);
  await listener.close();
});

// Calls that must not compile: they always fail, or are about nothing.
export function doesNotCompile(device: Device) {
  // @ts-expect-error messages need a connection
  connect('10.0.0.2:1', { portSpace: 'UDP' });
  // @ts-expect-error XRC carries no messages
  listen({ port: 1, transport: 'XRC' });
  // @ts-expect-error the place of a device is the id's
  new CmId({ deviceOptions: { address: '10.0.0.1' } });
  // @ts-expect-error neither is an interface
  connect('10.0.0.2:1', { deviceOptions: { interface: 'eth0' } });
  // And some that must.
  listen({ port: 1, portSpace: 'IB' });
  new CmId({ device, transport: 'XRC' });
  new EventChannel().getEvent().then(({ id }) => id.localAddress);
}
