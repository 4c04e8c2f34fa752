/** Clients of a device that had asked for a connection before the tester listened. */
import { type CmInput, type CmMessage, decodeCm, encodeCm, gidFromText } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { BrokenDevice } from '../testing/broken-device.ts';
import { rules } from './rules/all.ts';
import { play } from './run.ts';
import { type AdapterOptions, adapterBench, MODEL_OPTIONS } from './virtual/bench.ts';
import { TESTER } from './virtual/line.ts';
import { SERVICE_ID } from './virtual/listening-model.ts';

const [REPEATED] = rules('CM-29');

type Request = CmMessage<'REQ'>;

/** A bench with a client whose REQs leave as `send` has them, or not at all. */
function benchWith(send: (request: Request, device: BrokenDevice) => Request | undefined) {
  const sendMad = (mad: Uint8Array, device: BrokenDevice): readonly Uint8Array[] => {
    const decoded = decodeCm(mad);
    if (!decoded.ok || decoded.message.name !== 'REQ') return [mad];
    const sent = send(decoded.message, device);
    return sent === undefined ? [] : [encodeCm(sent as CmInput)];
  };
  const make = (options: AdapterOptions) =>
    new BrokenDevice({ ...options, ...MODEL_OPTIONS }, { seenBy: [], sendMad });
  return adapterBench(make, { serviceId: SERVICE_ID });
}

/** Of three REQs of the first call, the tester hears the last one only. */
function lastOnly(onLast: (device: BrokenDevice) => void = () => {}) {
  let [first, asked] = [0, 0];
  return benchWith((request, device) => {
    first ||= request.localCommId;
    if (request.localCommId !== first) return request;
    if (++asked < 3) return undefined;
    onLast(device);
    return request;
  });
}

test('the last REQ of a call is heard first: the next call is judged', async () => {
  const { verdict, why, ladder } = await play(REPEATED, lastOnly());
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('pass');
});

test('the last REQ of a call is heard first, and another client asks at once', async () => {
  const bench = lastOnly((device) => device.call(gidFromText(TESTER.ip)));
  const { verdict, why, ladder } = await play(REPEATED, bench);
  expect(verdict, `${why.join('\n')}\n${ladder}`).toBe('pass');
});

test('a client that asks once and not anew is not blamed', async () => {
  const bench = lastOnly();
  const { device } = bench;
  let calls = 0;
  const call = () => (calls++ === 0 ? device.call?.() : undefined);
  const { verdict, why, time } = await play(REPEATED, { ...bench, device: { ...device, call } });
  expect([verdict, ...why]).toEqual([
    'not testable',
    'the client asked once, perhaps for the last time, and not anew',
  ]);
  expect(time).toBeLessThan(60_000);
});

test('a client that will repeat its REQ after hours is not waited for', async () => {
  let asked = 0;
  const bench = benchWith((request) =>
    asked++ === 0 ? { ...request, remoteCmResponseTimeout: 31 } : undefined,
  );
  const { verdict, why, time } = await play(REPEATED, bench);
  expect([verdict, ...why]).toEqual(['not testable', 'the client repeats its REQ after more than 20 s']);
  expect(time).toBeLessThan(60_000);
});
