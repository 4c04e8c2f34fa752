/** Counts under the names of the drivers, and the page that maps the names. */
import { readFileSync } from 'node:fs';
import { AdapterCounters, QP_COUNTER_NAMES, QpCounters } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { clockOfTurns } from '../testing/clock.ts';
import { openPair } from '../testing/pair.ts';
import { deviceCounters, queuePairCounters } from './counters.ts';

const page = readFileSync(new URL('../../../docs/counters.md', import.meta.url), 'utf8');
/** Rows of the tables of counts: count, meaning, name of rxe, name of mlx5. */
const rows = [...page.matchAll(/^\| (.+) \| (.+) \| (.+) \| (.+) \|$/gm)]
  .map(([, count, , rxe, mlx5]) => ({
    count: count.replaceAll('`', ''),
    rxe: /`(\w+)`/.exec(rxe)?.[1],
    mlx5: /`(\w+)`/.exec(mlx5)?.[1],
  }))
  .filter(({ count }) => count !== 'Count');

/** A row without a count of its own. */
const PORT_ERRORS = '– (only as rxe.link_downed)';

const none = { ...new QpCounters(), ...new AdapterCounters(), acceptedPackets: 0 };

test('every count has its row', () => {
  const counts = [...QP_COUNTER_NAMES, ...Object.keys(new AdapterCounters()), 'acceptedPackets'];
  expect(new Set(rows.map(({ count }) => count))).toEqual(
    new Set([...counts, PORT_ERRORS, 'link.flushTwice']),
  );
});

test.each(['rxe', 'mlx5'] as const)('every name of %s has its row', (driver) => {
  const always0 = [...page.matchAll(/^\| (rxe|mlx5) `(\w+)`/gm)].filter(([, of]) => of === driver);
  const names = rows.flatMap((row) => row[driver] ?? []);
  const documented = new Set([...names, ...always0.map(([, , name]) => name)]);
  expect(documented).toEqual(new Set(Object.keys(deviceCounters(none, {}, 0)[driver])));
});

test.each(rows.filter(({ rxe, mlx5 }) => rxe ?? mlx5))('$count', ({ count, rxe, mlx5 }) => {
  const counted = deviceCounters({ ...none, [count]: 7 }, {}, count === PORT_ERRORS ? 7 : 0);
  // Of a device, `receivedPackets` are all that came in; the name is that of what was accepted.
  const expected = count === 'receivedPackets' ? 0 : 7;
  if (rxe) expect(counted.rxe).toHaveProperty(rxe, expected);
  if (mlx5) expect(counted.mlx5).toHaveProperty(mlx5, expected);
});

test('counts that a name leaves out or adds up', () => {
  const of = (counts: Partial<QpCounters>) => queuePairCounters({ ...new QpCounters(), ...counts });
  expect(of({ sentPackets: 9, sendErrors: 2 }).rxe).toMatchObject({ sent_pkts: 7, send_err: 2 });
  expect(of({ receivedPackets: 3 }).rxe.rcvd_pkts).toBe(3);
  const rnr = of({ receivedRnrErr: 3, rnrRetryExceededErr: 1, sentRnrErr: 4, outOfBuffer: 5 });
  expect(rnr.mlx5).toMatchObject({ rnr_nak_retry_err: 2, out_of_buffer: 9 });
  const failed = of({ failedSends: 1, flushedSends: 2, failedReceives: 3, flushedReceives: 4 });
  expect(failed.mlx5).toMatchObject({
    req_cqe_error: 3,
    req_cqe_flush_error: 2,
    resp_cqe_error: 7,
    resp_cqe_flush_error: 4,
  });
});

test('of a connection: the counts of both sides agree, the link has its own', async () => {
  clockOfTurns();
  await using pair = await openPair({ faults: { loss: 0.05, seed: 5 } }, { timeout: 10 });
  const { a, b } = pair;
  for (let i = 0; i < 40; i++) {
    a.qp.postSend({
      opcode: 'RDMA_WRITE',
      signaled: true,
      sgList: [{ mr: a.mr, length: 5000 }],
      remote: b.mr.remote(),
    });
    expect((await a.cq.next()).status).toBe('SUCCESS');
  }
  const [ofA, ofB] = [await a.qp.counters(), await b.qp.counters()];
  const device = await a.device.counters();
  expect(device.rxe).toEqual({ ...ofA.rxe, link_downed: 0 });
  expect(device.mlx5).toEqual({ ...ofA.mlx5, rx_icrc_encapsulated: 0 });
  expect(ofA.retransmittedPackets).toBeGreaterThan(0);
  expect(ofB.mlx5.rx_write_requests).toBe(40);
  expect(ofA.rxe.completer_retry_err).toBe(ofA.timeouts + ofA.receivedSeqErr);
  expect(device.link['outbound.lost'] + device.link['inbound.lost']).toBeGreaterThan(0);
});
