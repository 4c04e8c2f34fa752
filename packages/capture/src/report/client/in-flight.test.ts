import { expect, test } from 'vitest';
import { analysis, connection } from '../../../testing/analysis.ts';
import type { Connection, PlotPoint } from '../../flow/analysis.ts';
import { DEFAULT_LIMITS, toReportData } from '../data.ts';
import { inFlightOf } from './in-flight.ts';

const point = (
  time: number,
  kind: PlotPoint['kind'],
  psn: number,
  requester: 'a' | 'b' = 'a',
): PlotPoint => ({
  time,
  kind,
  psn,
  requester,
  frame: time,
  ...(kind === 'retransmission' && { cause: 'timeout' }),
});

function inFlight(plot: PlotPoint[], given: Partial<Connection> = {}) {
  const found = analysis({ connections: [connection({ plot, ...given })] });
  return inFlightOf(toReportData(found, 'test', DEFAULT_LIMITS).connections[0]);
}

test('grows with requests, falls with answers, and a NAK leaves its own PSN out', () => {
  const plot = [
    point(1, 'request', 100),
    point(2, 'request', 101),
    point(3, 'request', 102),
    point(4, 'ack', 100),
    point(5, 'nak', 102),
    point(6, 'retransmission', 102),
    point(7, 'cnp', 500),
    point(8, 'response', 102),
  ];
  expect(inFlight(plot)).toEqual([
    { requester: 'a', times: [1, 2, 3, 4, 5, 6, 8], packets: [1, 2, 3, 2, 1, 1, 0] },
  ]);
});

test('each end has its own numbers', () => {
  const plot = [
    point(1, 'request', 7),
    point(2, 'request', 9000, 'b'),
    point(3, 'ack', 7),
    point(4, 'ack', 9000, 'b'),
  ];
  expect(inFlight(plot).map(({ requester, packets }) => [requester, packets])).toEqual([
    ['a', [1, 0]],
    ['b', [1, 0]],
  ]);
});

test('nothing where answers are not in the capture, or there are none by nature', () => {
  const requests = [point(1, 'request', 1), point(2, 'request', 2)];
  expect(inFlight(requests)).toEqual([]);
  expect(inFlight([...requests, point(3, 'ack', 2)], { transport: 'UC' })).toEqual([]);
  expect(inFlight([])).toEqual([]);
});
