/** Alternate paths (IBTA vol 1 §12.8): LAP, APR, and the way of messages after a migration. */
import { CmAprStatus, CmMraMessage, decodeCm, encodeCm } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { gidOf, Pair } from '../testing/pair.ts';
import type { AlternatePath, Route } from './parameters.ts';

const SECOND = 1_000_000;
const { SUCCESS, UNSUPPORTED, REJECTED, IS_CURRENT, INVALID_QPN, INVALID_GID } = CmAprStatus;

/** The path from the second address of one side to that of the other. */
const pathTo = (last: number): AlternatePath => ({
  route: { sgidIndex: 1, gid: gidOf(last), trafficClass: 8, hopLimit: 3, flowLabel: 0x1_2345 },
  ackTimeout: 17,
});

function open(apm = true) {
  const pair = new Pair(1, { apm });
  const [id, other] = pair.established();
  pair.said();
  const sent: { to: Route; name: string }[] = [];
  const load = (path = pathTo(12)) => pair.a.cm.loadPath(id, path, pair.now);
  const offered = () => {
    pair.run(1000);
    return pair.b.take('path-offered');
  };
  return { pair, id, other, sent, load, offered };
}

function decoded(mad: Uint8Array) {
  const result = decodeCm(mad);
  if (!result.ok) throw new Error(result.reason);
  return result.message;
}

describe('a path', () => {
  test('is proposed by LAP, and taken by APR', () => {
    const { pair, id, other, load, offered } = open();
    load();
    expect(offered()).toEqual({
      type: 'path-offered',
      id: other,
      path: { ...pathTo(12), route: { ...pathTo(12).route, gid: gidOf(11) } },
    });
    pair.b.cm.answerPath(other, SUCCESS);
    pair.run(1000);
    expect(pair.a.take('path-response')).toEqual({ type: 'path-response', id, status: SUCCESS });
    expect(pair.said()).toEqual(['0 LAP', '1 APR']);
    pair.run(100 * SECOND);
    expect(pair.said()).toEqual([]);
    expect([pair.a.cm.stateOf(id), pair.b.cm.stateOf(other)]).toEqual(['ESTABLISHED', 'ESTABLISHED']);
  });

  test('may be proposed by the side that accepted, and by both at once', () => {
    const { pair, id, other, load } = open();
    load();
    pair.b.cm.loadPath(other, pathTo(11), pair.now);
    pair.run(1000);
    for (const [end, number] of [
      [pair.a, id],
      [pair.b, other],
    ] as const) {
      expect(end.take('path-offered').id).toBe(number);
      end.cm.answerPath(number, SUCCESS);
    }
    pair.run(1000);
    expect([pair.a.take('path-response').status, pair.b.take('path-response').status]).toEqual([
      SUCCESS,
      SUCCESS,
    ]);
  });

  test('that the program refuses is refused, and another one may follow', () => {
    const { pair, other, load, offered } = open();
    load();
    expect(load).toThrow(expect.objectContaining({ errno: 'ENOTCONN' }));
    offered();
    pair.b.cm.answerPath(other, REJECTED);
    expect(() => pair.b.cm.answerPath(other, SUCCESS)).toThrow(
      expect.objectContaining({ errno: 'ENOTCONN' }),
    );
    pair.run(1000);
    expect(pair.a.take('path-response').status).toBe(REJECTED);
    load();
    offered();
    pair.b.cm.answerPath(other, SUCCESS);
    pair.run(1000);
    expect(pair.a.take('path-response').status).toBe(SUCCESS);
  });

  test('is shown once, whatever copies come; a copy gets MRA, and later the same APR', () => {
    const { pair, other, load, offered } = open();
    pair.network = () => [100, 150];
    load();
    offered();
    expect(pair.said()).toEqual(['0 LAP', '1 MRA']);
    expect(pair.b.heard()).toEqual([]);
    pair.b.cm.answerPath(other, SUCCESS);
    pair.run(1000);
    expect(pair.a.heard()).toEqual(['path-response']);
    // The copies of the MRA and the APR.
    expect(pair.a.cm.counters.unexpected).toBe(2);
  });

  test('whose APR is lost is answered again by the same one', () => {
    const { pair, other, load, offered } = open();
    load();
    offered();
    pair.network = ({ name }) => (name === 'APR' ? [] : [100]);
    pair.b.cm.answerPath(other, SUCCESS);
    pair.run(1000);
    pair.network = () => [100];
    pair.run(60 * SECOND);
    expect(pair.said()).toEqual(['0 LAP', '1 APR', '0 LAP', '1 APR']);
    expect([pair.a.heard(), pair.b.heard()]).toEqual([['path-response'], []]);
  });

  test('that is not answered is given up after all repetitions, and the connection goes on', () => {
    const { pair, id, load } = open();
    pair.network = ({ name }) => (name === 'LAP' ? [] : [100]);
    load();
    pair.run(200 * SECOND);
    expect(pair.said()).toEqual(Array(16).fill('0 LAP'));
    expect(pair.a.take('path-response')).toEqual({ type: 'path-response', id, status: undefined });
    expect(pair.a.cm.stateOf(id)).toBe('ESTABLISHED');
    expect(pair.a.cm.nextDeadline()).toBe(Number.POSITIVE_INFINITY);
  });

  test('for which the peer asks for time is waited for', () => {
    const { pair, id, other, load } = open();
    pair.network = ({ name }) => (name === 'LAP' ? [] : [100]);
    load();
    const mra = { localCommId: other, remoteCommId: id, messageMraed: CmMraMessage.LAP, serviceTimeout: 24 };
    pair.deliver(0, encodeCm({ name: 'MRA', ...mra }));
    pair.run(60 * SECOND);
    expect(pair.said()).toEqual(['0 LAP']);
    expect(pair.a.cm.counters.unexpected).toBe(0);
    // Another one before the LAP is repeated stops no clock: the peer would hold the path for ever.
    pair.deliver(0, encodeCm({ name: 'MRA', ...mra }));
    expect(pair.a.cm.counters.unexpected).toBe(1);
    pair.run(60 * SECOND);
    expect(pair.said()).toContain('0 LAP');
    pair.deliver(0, encodeCm({ name: 'MRA', ...mra }));
    expect(pair.a.cm.counters.unexpected).toBe(1);
  });

  test('under way ends with the connection', () => {
    const { pair, id, load } = open();
    load();
    pair.a.cm.disconnect(id, pair.now);
    pair.run(1000);
    expect(pair.said()).toEqual(['0 LAP', '0 DREQ']);
    expect(() => pair.b.cm.answerPath(pair.b.take('path-offered').id, SUCCESS)).toThrow(
      expect.objectContaining({ errno: 'ENOTCONN' }),
    );
  });
});

describe('a LAP is refused', () => {
  const answerTo = (change: object, apm = true) => {
    const { pair, id, other } = open(apm);
    const answers: ReturnType<typeof decoded>[] = [];
    pair.network = ({ mad }) => {
      answers.push(decoded(mad));
      return [];
    };
    const path = { alternateLocalGid: gidOf(11), alternateRemoteGid: gidOf(12), remoteQpn: 0x61 };
    pair.deliver(
      1,
      encodeCm({ name: 'LAP', localCommId: id, remoteCommId: other, transactionId: 9n, ...path, ...change }),
    );
    expect(pair.b.heard()).toEqual([]);
    return answers;
  };

  test.each([
    ['of another queue pair', { remoteQpn: 0x62 }, INVALID_QPN],
    ['to an address that is not ours', { alternateRemoteGid: gidOf(13) }, INVALID_GID],
    ['of the path in use', { alternateLocalGid: gidOf(1), alternateRemoteGid: gidOf(2) }, IS_CURRENT],
  ])('%s', (_, change, status) => {
    expect(answerTo(change)).toMatchObject([{ name: 'APR', transactionId: 9n, status }]);
  });

  test('where paths do not migrate', () => {
    expect(answerTo({}, false)).toMatchObject([{ name: 'APR', transactionId: 9n, status: UNSUPPORTED }]);
  });

  test('silently where the connection is not made yet', () => {
    const pair = new Pair(1, { apm: true });
    pair.b.cm.listen(0x1_0000n);
    const id = pair.a.cm.connect(
      {
        serviceId: 0x1_0000n,
        route: { ...pathTo(2).route, sgidIndex: 0 },
        qpn: 1,
        startingPsn: 0,
        responderResources: 0,
        initiatorDepth: 0,
        pathMtu: 1024,
      },
      0,
    );
    pair.run(1000);
    const { id: other } = pair.b.take('request');
    pair.said();
    pair.deliver(1, encodeCm({ name: 'LAP', localCommId: id, remoteCommId: other }));
    expect([pair.said(), pair.b.cm.counters.unexpected]).toEqual([[], 1]);
  });
});

test('an APR that answers no LAP of ours changes nothing', () => {
  const { pair, id, other, load } = open();
  const forged = { localCommId: other, remoteCommId: id, status: SUCCESS };
  pair.deliver(0, encodeCm({ name: 'APR', transactionId: 1n, ...forged }));
  load();
  pair.deliver(0, encodeCm({ name: 'APR', transactionId: 1n, ...forged }));
  expect(pair.a.heard()).toEqual([]);
  expect(pair.a.cm.counters.unexpected).toBe(2);
});

test('after a migration, messages take the path that was loaded', () => {
  const { pair, id, other, load, offered } = open();
  load();
  offered();
  pair.b.cm.answerPath(other, SUCCESS);
  pair.run(1000);
  const ways: [number, Route][] = [];
  pair.onSend = (side, _mad, route) => void ways.push([side, route]);
  pair.b.cm.migrated(0x61);
  pair.a.cm.migrated(0x51);
  pair.a.cm.migrated(0x51);
  pair.a.cm.disconnect(id, pair.now);
  pair.run(1000);
  pair.b.cm.disconnect(other, pair.now);
  expect(ways).toEqual([
    [0, pathTo(12).route],
    [1, { ...pathTo(11).route }],
  ]);
  pair.run(200 * SECOND);
  for (const { cm } of pair.ends) expect(cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
});
