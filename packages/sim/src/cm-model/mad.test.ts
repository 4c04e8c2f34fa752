import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ATTRIBUTES, type CmName, type Field, LAYOUTS } from './layouts.ts';
import { type CmMessage, decodeCm, encodeCm } from './mad.ts';

const names = Object.keys(LAYOUTS) as CmName[];
const fieldsOf = (name: CmName) => Object.entries(LAYOUTS[name] as Record<string, Field<unknown>>);

const anyValueOf = (field: Field<unknown>): fc.Arbitrary<unknown> => {
  if (field.kind === 'bytes') {
    const length = field.width / 8;
    return fc.uint8Array({ minLength: length, maxLength: length });
  }
  if (field.kind === 'bigint') return fc.bigInt({ min: 0n, max: (1n << 64n) - 1n });
  return fc.nat(2 ** field.width - 1);
};

describe('layouts', () => {
  test.each(names)('%s: fields do not overlap and fit into the MAD', (name) => {
    const taken = new Set<number>();
    for (const [key, { byte, bit, width }] of fieldsOf(name)) {
      for (let at = byte * 8 + bit; at < byte * 8 + bit + width; at++) {
        expect(taken.has(at), `${key}, bit ${at}`).toBe(false);
        taken.add(at);
      }
    }
    expect(Math.max(...taken)).toBe(232 * 8 - 1);
  });

  test('attributes differ', () => {
    expect(new Set(Object.values(ATTRIBUTES)).size).toBe(names.length);
  });
});

test.each(names)('%s: an encoded message decodes to the same', (name) => {
  const fields = fc.record(
    Object.fromEntries(fieldsOf(name).map(([key, field]) => [key, anyValueOf(field)])),
  );
  fc.assert(
    fc.property(fields, fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }), (values, tid) => {
      expect(decodeCm(encodeCm(name, tid, values))).toEqual({ name, tid, ...values });
    }),
    { numRuns: 20 },
  );
});

test('the REQ of a recorded rping', () => {
  // cm_rping.pcap, up to the primary path.
  const mad = new Uint8Array(256);
  const put = (at: number, hex: string) => mad.set(Buffer.from(hex, 'hex'), at);
  put(0, '01070203');
  put(8, '000000024b6ae19f0010');
  put(24, '9fe16a4b000000000000000001061c06505400fffe770002');
  put(24 + 32, '0000510100000001');
  put(24 + 43, 'a0831a2ca7ffff57f0');
  expect(decodeCm(mad)).toMatchObject({
    name: 'REQ',
    tid: 0x24b6ae19fn,
    localId: 0x9fe16a4b,
    serviceId: 0x1061c06n,
    caGuid: 0x505400fffe770002n,
    qpn: 0x51,
    responderResources: 1,
    initiatorDepth: 1,
    remoteResponseTimeout: 20,
    transportService: 0,
    startingPsn: 0x831a2c,
    localResponseTimeout: 20,
    retryCount: 7,
    pkey: 0xffff,
    pathMtu: 5,
    rnrRetryCount: 7,
    maxCmRetries: 15,
    srq: 0,
  } satisfies Partial<CmMessage>);
});

test('any bytes decode to a message or a reason', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 250, maxLength: 260, size: 'max' }),
      fc.boolean(),
      (bytes, isCm) => {
        if (isCm) bytes.set([1, 7, 2, 3]);
        if (isCm) bytes.set([0, 0x10 + (bytes[17] % 12)], 16);
        const decoded = decodeCm(bytes);
        if (typeof decoded === 'string')
          expect(decoded).toMatch(/^(\d+ bytes|base|management|class|method|attribute)/);
        else expect(bytes.length).toBe(256);
      },
    ),
  );
});

test('a value that does not fit is refused', () => {
  expect(() => encodeCm('REQ', 0n, { qpn: 0x1000000 })).toThrow(RangeError);
  expect(() => encodeCm('RTU', 0n, { privateData: new Uint8Array(225) })).toThrow(RangeError);
});
