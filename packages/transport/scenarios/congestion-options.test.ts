/** Congestion control of devices and queue pairs: what can be asked for, and what a queue pair then has. */
import { describe, expect, test } from 'vitest';
import {
  CONGESTION_DEFAULTS,
  type Congestion,
  checkCongestion,
  resolveCongestion,
} from '../src/congestion/options.ts';
import { Side } from '../testing/pair.ts';

const device = (congestion: unknown) => () =>
  new Side(1, 1, { congestion: congestion as Partial<Congestion> });

describe('refused with EINVAL, by name', () => {
  test.each<[string, unknown, string]>([
    ['controller', 'bbr', 'aimd, dcqcn'],
    ['notify', 1, 'true or false'],
    ['cnpDscp', 64, '0 … 63'],
    ['cnpDscp', 1.5, '0 … 63'],
    ['minTimeBetweenCnps', -1, '0 … 1000000 µs'],
    ['g', 0, '9.5367431640625e-7 … 1'],
    ['g', Number.NaN, '9.5367431640625e-7 … 1'],
    ['initialAlpha', 1.01, '0 … 1'],
    ['alphaPeriod', 0.5, '1 … 1000000 µs'],
    ['rateReduceMonitorPeriod', Number.POSITIVE_INFINITY, '0 … 1000000 µs'],
    ['rpgTimeReset', '55', '1 … 1000000 µs'],
    ['rpgByteReset', 9_999, '10000 … 4294967295 bytes'],
    ['rpgThreshold', 0, '1 … 31'],
    ['rpgAiRate', 0, '1 … 1000000 Mb/s'],
    ['rpgHaiRate', 1e7, '1 … 1000000 Mb/s'],
    ['rpgMinRate', 0, '1 … 1000000 Mb/s'],
    ['rpgMaxRate', null, '1 … 1000000 Mb/s'],
    ['rpgMaxRate', 5n, '1 … 1000000 Mb/s'],
    ['constructor', 1, `one of ${Object.keys(CONGESTION_DEFAULTS).join(', ')}`],
    ['rate', 1, `one of ${Object.keys(CONGESTION_DEFAULTS).join(', ')}`],
  ])('%s: %s', (name, value, expected) => {
    const attribute = `congestion.${name}`;
    const error = expect.objectContaining({ errno: 'EINVAL', attribute, expected });
    expect(device({ [name]: value })).toThrow(error);
    const side = new Side(1, 1);
    const create = () => side.createQp({}, { congestion: { [name]: value } });
    expect(create).toThrow(error);
  });

  test('a floor above the line rate, also where device and queue pair have one each', () => {
    const error = expect.objectContaining({ errno: 'EINVAL', attribute: 'congestion.rpgMinRate' });
    expect(device({ rpgMinRate: 2000, rpgMaxRate: 1000 })).toThrow(error);
    const side = device({ rpgMinRate: 2000 })();
    const before = side.adapter.counters();
    expect(() => side.createQp({}, { congestion: { rpgMaxRate: 1000 } })).toThrow(error);
    expect(side.adapter.counters()).toEqual(before);
  });
});

test('every option at the ends of its range is taken', () => {
  const ends: [Partial<Congestion>, Partial<Congestion>] = [
    {
      cnpDscp: 0,
      minTimeBetweenCnps: 0,
      g: 2 ** -20,
      initialAlpha: 0,
      alphaPeriod: 1,
      rpgThreshold: 1,
      rpgMaxRate: 1,
    },
    {
      cnpDscp: 63,
      minTimeBetweenCnps: 1e6,
      g: 1,
      initialAlpha: 1,
      alphaPeriod: 1e6,
      rpgThreshold: 31,
      rpgMaxRate: 1e6,
    },
  ];
  for (const end of ends) expect(checkCongestion(end, 'congestion')).toEqual(end);
});

test('a queue pair has its own options, then the device’s, then the defaults', () => {
  const resolved = resolveCongestion(
    { controller: 'dcqcn', rpgAiRate: 5, cnpDscp: 40 },
    { rpgAiRate: 7 },
    'congestion',
  );
  expect(resolved).toEqual({
    ...CONGESTION_DEFAULTS,
    controller: 'dcqcn',
    notify: true,
    rpgAiRate: 7,
    cnpDscp: 40,
  });
  expect(checkCongestion({ rpgAiRate: undefined } as never, 'congestion')).toEqual({});
});

test('marks are answered where the controller is DCQCN, unless `notify` is given', () => {
  const notifies = (ofDevice: Partial<Congestion>, own: Partial<Congestion> = {}) =>
    resolveCongestion(ofDevice, own, 'congestion').notify;
  expect([
    notifies({}),
    notifies({ controller: 'dcqcn' }),
    notifies({ controller: 'dcqcn' }, { controller: 'aimd' }),
    notifies({ controller: 'dcqcn', notify: false }),
    notifies({ notify: true }),
    notifies({ notify: true }, { notify: false }),
  ]).toEqual([false, true, false, false, true, false]);
});
