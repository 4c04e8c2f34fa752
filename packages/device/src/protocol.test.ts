import { expect, test } from 'vitest';
import { cHeader } from '../testing/c-header.ts';
import { CALLS, GROUPS, HEADER_BYTES, type Layout, type Values } from './messages.ts';
import { decode, decodeRequest, encode, Malformed, message } from './protocol.ts';

test('the header in C is written from the table of messages', async () => {
  await expect(cHeader()).toMatchFileSnapshot('../../../native/ibverbs/messages.h');
});

test('each call has a number of its own, and lists come last', () => {
  const rows = Object.values<{ number: number; request: Layout; reply: Layout }>(CALLS);
  expect(new Set(rows.map(({ number }) => number)).size).toBe(rows.length);
  for (const { request, reply } of rows)
    for (const layout of [request, reply])
      expect(
        Object.values(layout)
          .slice(0, -1)
          .filter((field) => Array.isArray(field)),
      ).toEqual([]);
});

/** Values of a layout that differ from each other. */
function filled(layout: Layout, seed = 1): Values<Layout> {
  let last = seed;
  const of = (field: Layout[string] | 'u8'): unknown => {
    if (field === 'u32') return 0xffff_ffff - last++;
    if (field === 'u64') return 2n ** 64n - BigInt(last++);
    if (typeof field === 'number') return Buffer.from(Uint8Array.from({ length: field }, () => last++));
    if (!Array.isArray(field)) return filled(field as Layout, last++ + 100);
    const [element, most] = field as [Layout[string] | 'u8', number];
    return element === 'u8' ? of(most) : Array.from({ length: most }, () => of(element));
  };
  return Object.fromEntries(
    Object.entries(layout).map(([name, field]) => [name, of(field)]),
  ) as Values<Layout>;
}

test('every message is read as it was written, and neither shorter nor longer', () => {
  for (const { request, reply } of Object.values<{ request: Layout; reply: Layout }>(CALLS))
    for (const layout of [request, reply]) {
      const values = filled(layout);
      const payload = encode(layout, values);
      expect(decode(layout, payload)).toEqual(values);
      expect(() => decode(layout, Buffer.concat([payload, Buffer.alloc(1)]))).toThrow(Malformed);
      for (let length = 0; length < payload.length; length += 1 + (length >> 4))
        expect(() => decode(layout, payload.subarray(0, length))).toThrow(Malformed);
    }
});

test('a list with more elements than its message has room for is refused', () => {
  const head = encode(CALLS.POST_SRQ_OP.request, {}).subarray(0, -4);
  const count = (n: number) => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(n);
    return Buffer.concat([head, bytes, Buffer.alloc(n * 16)]);
  };
  expect(decodeRequest('POST_SRQ_OP', count(32)).sges.length).toBe(32);
  expect(() => decodeRequest('POST_SRQ_OP', count(33))).toThrow('a list of 33');
});

test('absent values are zeros, and negative numbers wrap', () => {
  expect(decode(GROUPS.event, encode(GROUPS.event, { handle: -1 }))).toEqual({
    type: 0,
    handle: 0xffff_ffff,
    port: 0,
  });
});

test('a message has its length and its code before it', () => {
  const bytes = message(22, Buffer.from('abc'));
  expect([bytes.readUInt32LE(0), bytes.readUInt32LE(4)]).toEqual([3, 22]);
  expect(bytes.toString('latin1', HEADER_BYTES)).toBe('abc');
});

test('bytes are copied', () => {
  const layout = { bytes: 4 } as const;
  const from = Buffer.from([1, 2, 3, 4]);
  const { bytes } = decode(layout, from);
  from.fill(9);
  expect([...bytes]).toEqual([1, 2, 3, 4]);
});
