import { describe, expect, test } from 'vitest';
import { type PerfOptions, planOf } from '../plan.ts';
import { decodeFigure, decodeMtu, decodePowerOfTwo, encodeFigure, encodeInt, encodeMtu } from './fields.ts';
import { checkKey, type Key, LONG_KEYS, SHORT_KEYS, TEXT_KEYS } from './keys.ts';
import { checkParameters, encodeParameters } from './parameters.ts';
import { answerTo, decodeVersion, encodeVersion, negotiates } from './versions.ts';

const wrong = expect.objectContaining({ code: 'ERR_ROCE_EXCHANGE' });
const ascii = (text: string) => Buffer.from(text, 'latin1');

describe('versions', () => {
  test('travel as text of 16 bytes', () => {
    expect(encodeVersion('6.06').toString('hex')).toBe(`362e3036${'00'.repeat(12)}`);
    expect(encodeVersion('6.29-mlx5')).toEqual(encodeVersion('6.29'));
    expect(decodeVersion(encodeVersion('6.24'))).toBe('6.24');
  });

  test.each([
    ['HTTP', ascii('GET / HTTP/1.1\r\n')],
    ['no zero byte', ascii('6.24567890123456')],
    ['nothing', Buffer.alloc(16)],
    ['a version before 5.70', encodeVersion('5.69')],
    ['text behind the zero byte', ascii(`6.24\0${'x'.repeat(11)}`)],
  ])('refuses %s', (_what, field) => {
    expect(() => decodeVersion(field)).toThrow(wrong);
  });

  test('control characters of a stranger are escaped', () => {
    const field = Buffer.concat([Buffer.of(0x9b, 0x33, 0x7f, 0x1b), Buffer.alloc(12)]);
    expect(() => decodeVersion(field)).toThrow(/"\\u009b3\\u007f\\u001b/);
  });

  test('compare as numbers: 6.06 is older than 6.6', () => {
    expect(['5.70', '6.06', '6.24', '6.27', '6.28', '6.6', '7.1'].map(negotiates)).toEqual([
      ...[false, false, false, false],
      ...[true, true, true],
    ]);
  });

  test('a server answers with the version of the client, and with 6.29 from 6.28 on', () => {
    expect(['6.06', '6.10', '6.24', '6.28', '6.29', '6.35'].map(answerTo)).toEqual([
      ...['6.06', '6.10', '6.24'],
      ...['6.29', '6.29', '6.29'],
    ]);
  });
});

describe('fields', () => {
  test('page size, cache line and MTU', () => {
    expect(encodeInt(4096).toString('hex')).toBe('00001000');
    expect(decodePowerOfTwo(encodeInt(65_536), 'page size', 4096, 2 ** 21)).toBe(65_536);
    expect(encodeMtu(1024)).toEqual(ascii('3\0'));
    expect([1, 2, 3, 4, 5].map((code) => decodeMtu(ascii(`${code}\0`)))).toEqual([
      256, 512, 1024, 2048, 4096,
    ]);
  });

  test.each([0, -4096, 4095, 2 ** 30])('refuses a page size of %i', (value) => {
    expect(() => decodePowerOfTwo(encodeInt(value), 'page size', 4096, 2 ** 21)).toThrow(wrong);
  });

  test.each(['0\0', '6\0', '3 ', '\0\0'])('refuses the MTU %j', (text) => {
    expect(() => decodeMtu(ascii(text))).toThrow(wrong);
  });

  test('figures of a report: integers and doubles, big-endian', () => {
    expect(encodeFigure('size', 65_536).toString('hex')).toBe('0000000000010000');
    expect(encodeFigure('average', 1).toString('hex')).toBe('3ff0000000000000');
    expect(decodeFigure('iterations', encodeFigure('iterations', 5000))).toBe(5000);
    expect(decodeFigure('peak', encodeFigure('peak', 123.456))).toBe(123.456);
  });

  test.each([
    ['average', encodeFigure('average', Number.NaN)],
    ['peak', encodeFigure('peak', -1)],
    ['iterations', Buffer.alloc(8, 0xff)],
  ] as const)('refuses impossible figures: %s', (name, field) => {
    expect(() => decodeFigure(name, field)).toThrow(wrong);
  });
});

const gid = Uint8Array.from([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 2]);
// As ib_write_lat printed it: QPN 0x003e PSN 0xb40ee RKey 0x0021a0 VAddr 0x00555de5b0e000.
const key: Key = {
  lid: 0,
  outReads: 1,
  qpn: 0x3e,
  psn: 0xb40ee,
  rkey: 0x21a0,
  vaddr: 0x555d_e5b0_e000n,
  gid,
};
const TEXT =
  '0000:0001:00003e:0b40ee:000021a0:0000555de5b0e000:' +
  '00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02:00000000:\0';

describe('keys', () => {
  test('as text: 108 bytes with the zero byte', () => {
    expect(TEXT).toHaveLength(TEXT_KEYS.bytes);
    expect(TEXT_KEYS.encode(key).toString('latin1')).toBe(TEXT);
    expect(TEXT_KEYS.decode(ascii(TEXT))).toEqual(key);
  });

  test('as a structure: 56 bytes, and 64 with the address of tail markers', () => {
    const head = '0000000000000001' + '0000003e' + '000b40ee' + '000021a0' + '00000000' + '0000555de5b0e000';
    const tail = '00000000000000000000ffff0a4d0002' + '0000000000000000';
    expect(SHORT_KEYS.encode(key).toString('hex')).toBe(head + tail);
    expect(LONG_KEYS.encode(key).toString('hex')).toBe(`${head}0000000000000000${tail}`);
    for (const form of [SHORT_KEYS, LONG_KEYS]) expect(form.decode(form.encode(key))).toEqual(key);
  });

  test.each([
    ['HTTP', 'GET / HTTP/1.1'.padEnd(108)],
    ['no zero byte', TEXT.replace('\0', ' ')],
    ['a letter in place of a digit', TEXT.replace('3e', '3g')],
    ['one byte less', TEXT.slice(1)],
  ])('refuses %s', (_what, text) => {
    expect(() => TEXT_KEYS.decode(ascii(text))).toThrow(wrong);
  });

  test('refuses queue pair 0 and 256 READs, but not in a barrier', () => {
    expect(() => checkKey({ ...key, qpn: 0 })).toThrow(wrong);
    expect(() => checkKey({ ...key, outReads: 256 })).toThrow(wrong);
    expect(SHORT_KEYS.decode(Buffer.alloc(56))).toMatchObject({ qpn: 0 });
  });
});

describe('parameters', () => {
  const side = (options: Partial<PerfOptions>) => ({
    plan: planOf({ verb: 'write', measure: 'bw', ...options }),
    rdmaCm: false,
    gigabits: false,
  });

  test('fields lie where the structure has them', () => {
    const message = encodeParameters(side({ qps: 4, iters: 100, size: 2048 }), 16, 312);
    expect(message).toHaveLength(312);
    // verb WRITE, test BW, reports in MiB/s
    expect([8, 12, 24].map((at) => message.readInt32BE(at))).toEqual([2, 1, 1]);
    expect([message.readBigUInt64BE(32), message.readBigUInt64BE(40)]).toEqual([2048n, 100n]);
    expect([52, 56].map((at) => message.readInt32BE(at))).toEqual([4, 5]);
    // Of the device, in the byte order of the host.
    expect(message.readInt32LE(224)).toBe(16);
  });

  test('the same test passes in both sizes', () => {
    for (const bytes of [312, 320]) checkParameters(side({}), encodeParameters(side({}), 16, bytes), '6.29');
  });

  test('a duration travels as whole seconds', () => {
    const part = side({ duration: 1.5, margin: 0.2 });
    checkParameters(part, encodeParameters(part, 16, 312), '6.29');
  });

  test.each<[string, Partial<PerfOptions>]>([
    ['verb', { verb: 'read' }],
    ['size', { size: 1 }],
    ['iters', { iters: 7 }],
    ['num_of_qps', { qps: 2 }],
    ['tst', { measure: 'lat', size: 65_536, iters: 5000 }],
    ['test_method', { all: true }],
    ['connection_type', { service: 'UC' }],
    ['test_type', { duration: 5 }],
  ])('another %s is named', (name, options) => {
    const theirs = encodeParameters(side(options), 16, 312);
    expect(() => checkParameters(side({}), theirs, '6.29')).toThrow(name);
  });
});
