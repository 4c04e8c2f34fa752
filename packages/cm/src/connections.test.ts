import {
  type CmInput,
  CmMraMessage,
  CmRejMessage,
  CmRejReason,
  CmSidrStatus,
  decodeCm,
  encodeCm,
  MAD_BYTES,
} from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { acceptInit, connectInit, gidOf, Pair, routeTo, SERVICE } from '../testing/pair.ts';

const SECOND = 1_000_000;

/** The MADs that one end sends, decoded. */
function listenTo(pair: Pair, side: 0 | 1) {
  const messages: ReturnType<typeof decoded>[] = [];
  const { network } = pair;
  pair.network = (flight) => {
    if (flight.from === side) messages.push(decoded(flight.mad));
    return network(flight);
  };
  return messages;
}

function decoded(mad: Uint8Array) {
  const result = decodeCm(mad);
  if (!result.ok) throw new Error(result.reason);
  return result.message;
}

describe('a connection', () => {
  test('is made by REQ, REP and RTU, and ended by DREQ and DREP', () => {
    const pair = new Pair();
    const [id, other] = pair.established();
    expect(pair.said()).toEqual(['0 REQ', '1 REP', '0 RTU']);
    pair.a.cm.disconnect(id, pair.now);
    pair.run(1000);
    expect(pair.b.take('disconnected')).toMatchObject({ id: other, cause: 'peer-closed' });
    pair.b.cm.disconnect(other, pair.now);
    pair.run(1000);
    expect(pair.a.take('disconnected')).toMatchObject({ id, cause: 'peer-closed' });
    expect(pair.said()).toEqual(['0 DREQ', '1 DREP']);
    expect(pair.a.cm.stateOf(id)).toBe('TIMEWAIT');
    pair.run(10 * SECOND);
    expect([pair.a.heard(), pair.b.heard()]).toEqual([['timewait-exit'], ['timewait-exit']]);
    for (const { cm } of pair.ends)
      expect(cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
  });

  test('carries the program’s private data to the other side', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.connect({
      privateData: Uint8Array.of(1, 2, 3),
      pathMtu: 4096,
      endToEndFlowControl: true,
      retryCount: 3,
    });
    pair.run(1000);
    const { id, request, route, translated } = pair.b.take('request');
    expect(request).toMatchObject({
      localQpn: 0x51,
      pathMtu: 5,
      endToEndFlowControl: true,
      retryCount: 3,
      primaryLocalGid: gidOf(1),
      primaryRemoteGid: gidOf(2),
      localCaGuid: 1n,
    });
    expect(request.privateData.subarray(0, 4)).toEqual(Uint8Array.of(1, 2, 3, 0));
    expect([route.gid, translated]).toEqual([gidOf(1), false]);
    pair.b.cm.accept(
      id,
      acceptInit({ privateData: Uint8Array.of(4), srq: true, targetAckDelay: 9 }),
      pair.now,
    );
    pair.run(1000);
    expect(pair.a.take('response').reply).toMatchObject({
      localQpn: 0x61,
      startingPsn: 9,
      srq: true,
      targetAckDelay: 9,
      localCaGuid: 2n,
    });
  });

  test('is refused by the program, with its private data', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.connect();
    pair.run(1000);
    pair.b.cm.reject(pair.b.take('request').id, { privateData: Uint8Array.of(7) }, pair.now);
    pair.run(1000);
    const { reject } = pair.a.take('rejected');
    expect(reject).toMatchObject({
      reason: CmRejReason.CONSUMER_DEFINED,
      messageRejected: CmRejMessage.REQ,
    });
    expect(reject.privateData[0]).toBe(7);
    for (const { cm } of pair.ends) expect(cm.size.connections).toBe(0);
  });

  test('to a service without a listener is refused: INVALID_SERVICE_ID', () => {
    const pair = new Pair();
    pair.connect();
    pair.run(1000);
    expect(pair.a.take('rejected').reject).toMatchObject({
      reason: CmRejReason.INVALID_SERVICE_ID,
      localCommId: 0,
    });
  });

  test('to an address that is not of this adapter is refused, with an address that is', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.connect({ route: routeTo(9) });
    pair.run(1000);
    const { reject } = pair.a.take('rejected');
    expect(reject).toMatchObject({ reason: CmRejReason.INVALID_GID, additionalInfoLength: 16 });
    expect(reject.additionalInfo.subarray(0, 16)).toEqual(gidOf(2));
  });

  // Once: accepted, whatever the partition.
  test.each([
    [0x1234, false],
    [0x9234, false],
    [0, false],
    [0x8000, false],
    [0x7fff, true],
    [0xffff, true],
  ])('of the partition %i: taken only if it is the default one', (pkey, taken) => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.network = ({ from, mad, name }) => {
      if (from === 1) return [100];
      if (name === 'REQ') {
        const decoded = decodeCm(mad);
        if (decoded.ok)
          pair.b.cm.receive(encodeCm({ ...decoded.message, pkey } as CmInput), 0, routeTo(1), pair.now);
      }
      return [];
    };
    pair.connect();
    pair.run(1000);
    if (taken) {
      expect(pair.b.take('request').request.pkey).toBe(pkey);
      return;
    }
    expect(pair.b.events).toEqual([]);
    const { reject } = pair.a.take('rejected');
    expect(reject).toMatchObject({ reason: CmRejReason.INVALID_GID, additionalInfoLength: 16 });
    expect(pair.b.cm.size).toMatchObject({ connections: 0, pending: 0, keys: 0 });
  });

  test('through a translated address is marked as such', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.network = ({ from, mad }) => {
      if (from === 0) pair.b.cm.receive(mad, 0, routeTo(77), pair.now);
      return [];
    };
    pair.connect();
    expect(pair.b.take('request').translated).toBe(true);
  });

  test('does nothing twice where both sides disconnect at once', () => {
    const pair = new Pair();
    const [id, other] = pair.established();
    pair.said();
    pair.a.cm.disconnect(id, pair.now);
    pair.b.cm.disconnect(other, pair.now);
    pair.run(1000);
    expect(pair.said()).toEqual(['0 DREQ', '1 DREQ', '1 DREP', '0 DREP']);
    expect([pair.a.heard(), pair.b.heard()]).toEqual([['disconnected'], ['disconnected']]);
    pair.run(10 * SECOND);
    for (const { cm } of pair.ends) expect(cm.size.connections).toBe(0);
  });

  test('in each direction between the same two ends, at once, are two', () => {
    const pair = new Pair();
    pair.a.cm.listen(SERVICE);
    pair.b.cm.listen(SERVICE);
    pair.connect();
    pair.b.cm.connect(connectInit({ route: routeTo(1), qpn: 0x71 }), pair.now);
    pair.run(1000);
    pair.a.cm.accept(pair.a.take('request').id, acceptInit({ qpn: 0x52 }), pair.now);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit({ qpn: 0x72 }), pair.now);
    pair.run(1000);
    for (const end of pair.ends) end.cm.ready(end.take('response').id);
    pair.run(1000);
    expect([pair.a.heard(), pair.b.heard()]).toEqual([
      ['established', 'established'],
      ['established', 'established'],
    ]);
  });
});

describe('lost messages are retransmitted', () => {
  /** Loses the first message of each name. */
  function losingFirst(pair: Pair, ...names: string[]): void {
    const { network } = pair;
    const left = new Set(names);
    pair.network = (flight) => (left.delete(flight.name!) ? [] : network(flight));
  }

  test('REQ after two packet lifetimes and the response time: 4.6 s', () => {
    const pair = new Pair();
    losingFirst(pair, 'REQ');
    pair.b.cm.listen(SERVICE);
    pair.connect();
    pair.run(4.6 * SECOND);
    expect(pair.said()).toEqual(['0 REQ']);
    pair.run(0.1 * SECOND);
    expect(pair.said()).toEqual(['0 REQ']);
    pair.b.take('request');
    expect(pair.a.cm.counters.retried).toBe(1);
  });

  test('REP after the response time in REQ: 4.1 s', () => {
    const pair = new Pair();
    losingFirst(pair, 'REP');
    pair.b.cm.listen(SERVICE);
    pair.connect({ packetLifetime: 18 });
    pair.run(1000);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    pair.run(4.09 * SECOND);
    expect(pair.said()).toEqual(['0 REQ', '1 REP']);
    pair.run(0.02 * SECOND);
    expect(pair.said()).toEqual(['1 REP']);
    pair.a.take('response');
  });

  test('RTU when REP comes again', () => {
    const pair = new Pair();
    losingFirst(pair, 'RTU');
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    pair.run(1000);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.cm.ready(id);
    pair.run(5 * SECOND);
    expect(pair.said()).toEqual(['0 REQ', '1 REP', '0 RTU', '1 REP', '0 RTU']);
    pair.b.take('established');
  });

  test('data before RTU stands for it, and RTU is taken when it comes', () => {
    const pair = new Pair();
    pair.network = ({ name }) => (name === 'RTU' ? [2 * SECOND] : [100]);
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    pair.run(1000);
    const request = pair.b.take('request');
    pair.b.cm.accept(request.id, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.cm.ready(id);
    pair.b.cm.heard(0x61);
    expect(pair.b.heard()).toEqual(['established']);
    pair.run(10 * SECOND);
    expect([pair.b.heard(), pair.b.cm.stateOf(request.id)]).toEqual([[], 'ESTABLISHED']);
    expect(pair.said()).toEqual(['0 REQ', '1 REP', '0 RTU']);
  });

  test('DREQ; and DREP when DREQ comes again', () => {
    const pair = new Pair();
    const [id, other] = pair.established();
    losingFirst(pair, 'DREQ', 'DREP');
    pair.said();
    pair.a.cm.disconnect(id, pair.now);
    pair.run(5 * SECOND);
    pair.b.take('disconnected');
    pair.b.cm.disconnect(other, pair.now);
    pair.run(5 * SECOND);
    expect(pair.said()).toEqual(['0 DREQ', '0 DREQ', '1 DREP', '0 DREQ', '1 DREP']);
    pair.a.take('disconnected');
  });

  test('retransmits not for ever: REQ 16 times, then a REJ with the reason', () => {
    const pair = new Pair();
    pair.network = () => [];
    pair.connect();
    pair.run(100 * SECOND);
    expect(pair.said()).toEqual([...Array(16).fill('0 REQ'), '0 REJ']);
    expect(pair.a.heard()).toEqual(['unreachable']);
    expect(pair.a.cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
  });

  test('the count and interval that the program gives', () => {
    const pair = new Pair();
    pair.network = () => [];
    pair.connect({ responseTimeout: 14, packetLifetime: 12, maxRetries: 2 });
    pair.run(3 * (64_000 + 32_000) + 1);
    expect(pair.said()).toEqual(['0 REQ', '0 REQ', '0 REQ', '0 REJ']);
  });

  test.each([
    [31, 15, 16],
    [31, 0, 1],
    [22, 3, 4],
  ])(
    'REP for 66 s in all, where REQ asks for code %i and %i repetitions',
    (responseTimeout, maxRetries, reps) => {
      const pair = new Pair();
      pair.b.cm.listen(SERVICE);
      pair.connect({ responseTimeout, maxRetries, packetLifetime: 31 });
      pair.run(1000);
      pair.network = () => [];
      pair.said();
      pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
      pair.run(65.4 * SECOND);
      expect([pair.said(), pair.b.heard()]).toEqual([Array(reps).fill('1 REP'), []]);
      pair.run(0.2 * SECOND);
      expect([pair.said(), pair.b.heard()]).toEqual([['1 REJ'], ['unreachable']]);
    },
  );

  test('a peer that answers no DREQ: the connection ends all the same', () => {
    const pair = new Pair();
    const [id] = pair.established();
    pair.network = () => [];
    pair.a.cm.disconnect(id, pair.now);
    pair.run(100 * SECOND);
    expect(pair.a.take('disconnected').cause).toBe('timeout');
    expect(pair.a.heard()).toEqual(['timewait-exit']);
  });

  test('a REJ for a timeout finds the request by the sender’s GUID', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    pair.run(1000);
    pair.a.cm.destroy(id, pair.now);
    pair.run(1000);
    pair.b.take('request');
    expect(pair.b.take('rejected').reject).toMatchObject({ reason: CmRejReason.TIMEOUT, remoteCommId: 0 });
    expect(pair.b.cm.size).toMatchObject({ connections: 0, pending: 0 });
  });
});

describe('MRA', () => {
  test('answers a repeated REQ that the program has not answered, and stops the clock', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.connect();
    pair.run(60 * SECOND);
    expect(pair.said()).toEqual(['0 REQ', '0 REQ', '1 MRA']);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.take('response');
  });

  test('answers a repeated REP that the program has not taken', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    pair.run(1000);
    const messages = listenTo(pair, 0);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    pair.run(60 * SECOND);
    expect(messages).toMatchObject([{ name: 'MRA', messageMraed: CmMraMessage.REP, serviceTimeout: 24 }]);
    pair.a.cm.ready(id);
    pair.run(1000);
    pair.b.take('established');
  });

  test('stops the clock as often as it comes: one for each repetition', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    // 16 requests, 15 of them with 66.1 s after their MRA.
    pair.run(900 * SECOND);
    expect(pair.said().filter((what) => what === '1 MRA').length).toBeGreaterThan(10);
    expect(pair.a.cm.stateOf(id)).toBe('MRA_REQ_RCVD');
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.take('response');
  });

  test('once its time is over, repetitions go on', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.connect();
    pair.run(5 * SECOND);
    pair.said();
    pair.run(65.9 * SECOND);
    expect(pair.said()).toEqual(['0 REQ', '1 MRA']);
  });
});

describe('copies and late messages', () => {
  test('a REJ that crosses a DREQ ends the connection, and the program hears of it', () => {
    const pair = new Pair();
    pair.network = ({ name }) => (name === 'RTU' || name === 'DREQ' ? [] : [100]);
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    pair.run(1000);
    const { id: other } = pair.b.take('request');
    pair.b.cm.accept(other, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.cm.ready(id);
    pair.a.cm.disconnect(id, pair.now);
    pair.b.cm.destroy(other, pair.now);
    pair.run(1000);
    expect(pair.a.take('disconnected').cause).toBe('peer-closed');
    expect(pair.a.cm.stateOf(id)).toBe('TIMEWAIT');
  });

  test('a REP of another connection, while the first waits for the program, is not answered', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    const id = pair.connect();
    pair.run(1000);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    pair.run(1000);
    const messages = listenTo(pair, 0);
    pair.deliver(0, encodeCm({ name: 'REP', localCommId: 5, remoteCommId: id }));
    expect(messages).toEqual([]);
  });

  test('every message twice makes one connection', () => {
    const pair = new Pair();
    pair.network = () => [100, 300];
    pair.inTimewait();
    expect([pair.a.heard(), pair.b.heard()]).toEqual([[], []]);
  });

  test('a REQ that comes again in TIMEWAIT is refused as stale', () => {
    const pair = new Pair();
    let request: Uint8Array | undefined;
    pair.network = ({ name, mad }) => {
      if (name === 'REQ') request = mad.slice();
      return [100];
    };
    pair.inTimewait();
    const messages = listenTo(pair, 1);
    pair.deliver(1, request!);
    expect(messages).toMatchObject([
      { name: 'REJ', reason: CmRejReason.STALE_CONNECTION, messageRejected: CmRejMessage.OTHER },
    ]);
  });

  test('a DREQ for nobody is answered, with its ids; one for another queue pair is not', () => {
    const pair = new Pair();
    const [, other] = pair.established();
    const messages = listenTo(pair, 1);
    const dreq = { name: 'DREQ', localCommId: 5, remoteCommId: 6, remoteQpn: 1, transactionId: 77n } as const;
    pair.deliver(1, encodeCm(dreq));
    expect(messages).toMatchObject([{ name: 'DREP', localCommId: 6, remoteCommId: 5, transactionId: 77n }]);
    pair.b.cm.receive(encodeCm({ ...dreq, remoteCommId: other }), 0, routeTo(1), pair.now);
    expect(pair.b.cm.stateOf(other)).toBe('ESTABLISHED');
  });

  test('a REP for nobody is refused: INVALID_COMM_ID', () => {
    const pair = new Pair();
    const messages = listenTo(pair, 0);
    pair.deliver(0, encodeCm({ name: 'REP', localCommId: 5, remoteCommId: 6 }));
    expect(messages).toMatchObject([
      { name: 'REJ', reason: CmRejReason.INVALID_COMM_ID, messageRejected: CmRejMessage.REP },
    ]);
  });

  test('answers to messages of nobody’s are limited in rate', () => {
    const pair = new Pair();
    const stray = encodeCm({ name: 'DREQ', localCommId: 5, remoteCommId: 6 });
    for (let i = 0; i < 10_000; i++) pair.deliver(0, stray);
    expect(pair.said()).toHaveLength(64);
    expect(pair.a.cm.counters.suppressed).toBe(10_000 - 64);
    pair.run(SECOND / 100);
    for (let i = 0; i < 100; i++) pair.deliver(0, stray);
    expect(pair.said()).toHaveLength(10);
  });
});

describe('stale connections', () => {
  test('a REQ of a queue pair that has a connection is refused, and the old one ended', () => {
    const pair = new Pair();
    const [old, other] = pair.established();
    pair.a.cm.connect(connectInit(), pair.now);
    pair.run(1000);
    expect(pair.a.take('rejected').reject).toMatchObject({
      reason: CmRejReason.STALE_CONNECTION,
      messageRejected: CmRejMessage.REQ,
    });
    // The old one is alive here, and answers the DREQ; a copy of the REQ changes nothing.
    expect(pair.a.take('disconnected').cause).toBe('peer-closed');
    expect(pair.b.cm.stateOf(other)).toBe('DREQ_SENT');
    pair.a.cm.connect(connectInit(), pair.now);
    pair.run(10 * SECOND);
    pair.a.cm.disconnect(old, pair.now);
    pair.run(1000);
    expect(pair.b.take('disconnected').cause).toBe('stale');
  });

  test('a peer that lost its memory is found out at its next REQ', () => {
    const pair = new Pair();
    pair.established();
    const fresh = new Pair(2);
    fresh.network = ({ mad }) => {
      pair.deliver(1, mad);
      return [];
    };
    fresh.connect();
    expect(pair.said().slice(-2)).toEqual(['1 REJ', '1 DREQ']);
    pair.ends[0] = fresh.a;
    pair.run(1000);
    // Unknown there, and answered all the same.
    expect(pair.b.take('disconnected').cause).toBe('stale');
  });

  test('a queue pair whose connection is in TIMEWAIT may have another one, on both sides', () => {
    const pair = new Pair();
    const [id] = pair.inTimewait();
    // REQ and REP name the queue pairs of before.
    const next = pair.connect();
    pair.run(1000);
    const { id: nextOther } = pair.b.take('request');
    pair.b.cm.accept(nextOther, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.cm.ready(next);
    pair.run(1000);
    expect([pair.a.cm.stateOf(next), pair.b.cm.stateOf(nextOther)]).toEqual(['ESTABLISHED', 'ESTABLISHED']);
    // The end of TIMEWAIT is of the old connection alone: the queue pair is known for connected afterwards.
    pair.run(10 * SECOND);
    expect(pair.a.cm.stateOf(id)).toBeUndefined();
    pair.a.heard();
    pair.connect();
    pair.run(1000);
    expect(pair.a.take('rejected').reject.reason).toBe(CmRejReason.STALE_CONNECTION);
  });

  test('is found out though the backlog is full', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE, 1);
    pair.connect();
    pair.run(1000);
    const { id } = pair.b.take('request');
    pair.b.cm.accept(id, acceptInit(), pair.now);
    pair.connect({ qpn: 0x52 });
    pair.run(1000);
    expect(pair.b.cm.size.pending).toBe(1);
    pair.connect();
    pair.run(1000);
    expect(pair.a.take('rejected').reject.reason).toBe(CmRejReason.STALE_CONNECTION);
  });

  test('a stranger who names the queue pair of another does not end its connection', () => {
    const pair = new Pair();
    const [id, other] = pair.established();
    const forged = {
      localCaGuid: 1n,
      localQpn: 0x51,
      serviceId: SERVICE,
      primaryRemoteGid: gidOf(2),
      primaryLocalGid: gidOf(9),
      pkey: 0xffff,
    };
    // As a client of the same listener …
    pair.b.cm.receive(encodeCm({ name: 'REQ', localCommId: 77, ...forged }), 0, routeTo(9), pair.now);
    expect(pair.b.cm.stateOf(other)).toBe('ESTABLISHED');
    pair.b.take('request');
    // … and as a server that our program connects to.
    const asked = pair.b.cm.connect(connectInit({ route: routeTo(9), qpn: 0x99 }), pair.now);
    const rep = { localCommId: 78, remoteCommId: asked, localCaGuid: 1n, localQpn: 0x51 };
    pair.b.cm.receive(encodeCm({ name: 'REP', ...rep }), 0, routeTo(9), pair.now);
    expect(pair.b.cm.stateOf(other)).toBe('ESTABLISHED');
    pair.run(1000);
    expect(pair.a.cm.stateOf(id)).toBe('ESTABLISHED');
  });

  test('the GUID distinguishes adapters', () => {
    const pair = new Pair();
    pair.established();
    const req = {
      name: 'REQ',
      pkey: 0xffff,
      localCommId: 1,
      localCaGuid: 99n,
      localQpn: 0x51,
      serviceId: SERVICE,
      primaryRemoteGid: gidOf(2),
    } as const;
    pair.deliver(1, encodeCm(req));
    pair.b.take('request');
  });
});

describe('bounds', () => {
  test('a full backlog is silent, and the requests that find room later are taken', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE, 2);
    for (let qpn = 1; qpn <= 3; qpn++) pair.connect({ qpn });
    pair.run(1000);
    expect(pair.b.heard()).toEqual(['request', 'request']);
    expect([pair.b.cm.counters.overflowed, pair.b.cm.size.pending]).toEqual([1, 2]);
    pair.said();
  });

  test('a REJ before REP leaves nothing behind, also for a stale connection', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    const localCommId = pair.connect();
    pair.run(1000);
    const ids = { localCommId, remoteCommId: pair.b.take('request').id };
    pair.deliver(1, encodeCm({ name: 'REJ', ...ids, reason: CmRejReason.STALE_CONNECTION }));
    expect(pair.b.heard()).toEqual(['rejected']);
    expect(pair.b.cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
  });

  test('connections in TIMEWAIT take no room of others; there are as many, and the oldest end early', () => {
    const pair = new Pair(1, { maxConnections: 2 });
    const { cm } = pair.b;
    cm.listen(SERVICE);
    const qpns = [0x201, 0x202, 0x203];
    for (const qpn of qpns) {
      const peer = { localCaGuid: 99n, localQpn: qpn, primaryRemoteGid: gidOf(2), primaryAckTimeout: 31 };
      pair.deliver(1, encodeCm({ name: 'REQ', localCommId: qpn, serviceId: SERVICE, pkey: 0xffff, ...peer }));
      const { id } = pair.b.take('request');
      cm.accept(id, acceptInit({ qpn }), pair.now);
      pair.deliver(1, encodeCm({ name: 'DREQ', localCommId: qpn, remoteCommId: id, remoteQpn: qpn }));
      cm.disconnect(id, pair.now);
    }
    expect(pair.b.heard()).toEqual(['disconnected', 'disconnected', 'disconnected', 'timewait-exit']);
    expect(cm.size).toMatchObject({ connections: 2, timers: 2 });
    // A client finds room, and so does a program that connects; then it is full.
    pair.connect();
    pair.run(1000);
    pair.b.take('request');
    cm.connect(connectInit({ route: routeTo(1), qpn: 0x204 }), pair.now);
    expect(() => cm.connect(connectInit({ route: routeTo(1), qpn: 0x205 }), pair.now)).toThrow(
      '2 connections are open',
    );
    pair.connect({ qpn: 0x52 });
    pair.run(1000);
    expect(cm.counters.overflowed).toBe(1);
    // No number is free before its TIMEWAIT would have been over, also where that ended early.
    pair.run(65 * SECOND);
    expect(qpns.map((qpn) => cm.holds(qpn, pair.now))).toEqual([true, true, true]);
  });

  test('a request that was accepted is no longer in the backlog', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE, 1);
    pair.connect({ qpn: 1 });
    pair.run(1000);
    pair.b.cm.accept(pair.b.take('request').id, acceptInit(), pair.now);
    expect(pair.b.cm.size.pending).toBe(0);
    pair.connect({ qpn: 2 });
    pair.run(1000);
    pair.b.take('request');
  });

  test('counts malformed MADs', () => {
    const pair = new Pair();
    const bad = [
      new Uint8Array(MAD_BYTES - 1),
      new Uint8Array(MAD_BYTES),
      encodeCm({ name: 'RTU' }).fill(9, 2, 3),
    ];
    for (const mad of bad) pair.deliver(0, mad);
    expect(pair.a.cm.counters.malformed).toBe(3);
    expect(pair.said()).toEqual([]);
  });

  test('a listener that ends refuses waiting requests', () => {
    const pair = new Pair();
    const listener = pair.b.cm.listen(SERVICE);
    pair.connect();
    pair.run(1000);
    pair.b.cm.unlisten(listener, pair.now);
    pair.run(1000);
    expect(pair.a.take('rejected').reject.reason).toBe(CmRejReason.CONSUMER_DEFINED);
    expect(() => pair.b.cm.listen(SERVICE)).not.toThrow();
    expect(() => pair.b.cm.listen(SERVICE)).toThrow('has a listener');
  });

  test('a value that does not fit its field changes nothing', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    expect(() => pair.connect({ initiatorDepth: 256 })).toThrow(RangeError);
    expect(pair.a.cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
    pair.connect();
    pair.run(1000);
    const { id } = pair.b.take('request');
    expect(() => pair.b.cm.accept(id, acceptInit({ startingPsn: 2 ** 24 }), pair.now)).toThrow(RangeError);
    expect(pair.b.cm.stateOf(id)).toBe('REQ_RCVD');
    pair.b.cm.accept(id, acceptInit(), pair.now);
    pair.run(1000);
    pair.a.take('response');
  });

  test('calls in the wrong state fail with the state’s name', () => {
    const pair = new Pair();
    const [id] = pair.established();
    expect(() => pair.a.cm.ready(id)).toThrow('the connection is in state ESTABLISHED');
    expect(() => pair.a.cm.accept(id, acceptInit(), pair.now)).toThrow('ESTABLISHED');
    expect(() => pair.a.cm.disconnect(1, pair.now)).toThrow('the connection has ended');
  });

  test('an id is destroyed in any state, and the peer hears of it', () => {
    const pair = new Pair();
    const [id] = pair.established();
    pair.said();
    pair.a.cm.destroy(id, pair.now);
    pair.run(1000);
    const { id: other } = pair.b.take('disconnected');
    pair.b.cm.destroy(other, pair.now);
    pair.run(10 * SECOND);
    expect(pair.said()).toEqual(['0 DREQ', '1 DREP']);
    expect([pair.a.heard(), pair.b.heard()]).toEqual([[], []]);
    for (const { cm } of pair.ends)
      expect(cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });
  });
});

describe('path messages', () => {
  test('LAP is refused: only the path of REQ is kept', () => {
    const pair = new Pair();
    const [id, other] = pair.established();
    const messages = listenTo(pair, 1);
    pair.deliver(1, encodeCm({ name: 'LAP', localCommId: id, remoteCommId: other }));
    pair.deliver(1, encodeCm({ name: 'LAP', localCommId: 1, remoteCommId: 2 }));
    expect(messages).toMatchObject([
      { name: 'APR', status: 2 },
      { name: 'APR', status: 1 },
    ]);
  });
});

describe('datagram services', () => {
  test('SIDR_REQ is answered with a queue pair and its key', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    const id = pair.a.cm.resolve({ serviceId: SERVICE, route: routeTo(2), privateData: Uint8Array.of(5) }, 0);
    pair.run(1000);
    const request = pair.b.take('datagram-request');
    expect(request.request.privateData[0]).toBe(5);
    pair.b.cm.answer(request.id, { qpn: 0x77, qkey: 0x0123_4567, privateData: Uint8Array.of(6) });
    pair.run(1000);
    const { id: answered, reply } = pair.a.take('datagram-response');
    expect(answered).toBe(id);
    expect(reply).toMatchObject({
      status: CmSidrStatus.SUCCESS,
      qpn: 0x77,
      qkey: 0x0123_4567,
      serviceId: SERVICE,
    });
    for (const { cm } of pair.ends) expect(cm.size.timers).toBe(0);
  });

  test('a service without a listener, and one that refuses', () => {
    const pair = new Pair();
    pair.a.cm.resolve({ serviceId: SERVICE, route: routeTo(2) }, 0);
    pair.run(1000);
    expect(pair.a.take('datagram-response').reply.status).toBe(CmSidrStatus.UNSUPPORTED);
    pair.b.cm.listen(SERVICE);
    pair.a.cm.resolve({ serviceId: SERVICE, route: routeTo(2) }, pair.now);
    pair.run(1000);
    pair.b.cm.destroy(pair.b.take('datagram-request').id, pair.now);
    pair.run(1000);
    expect(pair.a.take('datagram-response').reply.status).toBe(CmSidrStatus.REJECT);
  });

  test('an adapter that closes refuses those who wait, and asks no more', () => {
    const pair = new Pair();
    pair.b.cm.listen(SERVICE);
    pair.a.cm.resolve({ serviceId: SERVICE, route: routeTo(2) }, 0);
    pair.run(1000);
    pair.b.take('datagram-request');
    pair.b.cm.resolve({ serviceId: SERVICE, route: routeTo(1) }, pair.now);
    pair.b.cm.close(pair.now);
    expect(pair.b.cm.size.timers).toBe(0);
    pair.run(1000);
    expect(pair.a.take('datagram-response').reply.status).toBe(CmSidrStatus.REJECT);
  });

  test('a lost question is asked again, every 4.1 s, 16 times in all', () => {
    const pair = new Pair();
    pair.network = () => [];
    pair.a.cm.resolve({ serviceId: SERVICE, route: routeTo(2) }, 0);
    pair.run(70 * SECOND);
    expect(pair.said()).toHaveLength(16);
    expect(pair.a.heard()).toEqual(['unreachable']);
  });
});

describe('numbers that were in use', () => {
  const hold = 2 * 512_000; // Twice TIMEWAIT of code 17.

  test('a QPN is held with its connection, in TIMEWAIT, and twice as long after it', () => {
    const pair = new Pair();
    const { a, b } = pair;
    const [id, far] = pair.established();
    const held = () => [a.cm.holds(0x51, pair.now), b.cm.holds(0x61, pair.now)];
    expect(held()).toEqual([true, true]);
    expect(a.cm.idle).toBe(false);
    pair.end(id, far);
    expect(held()).toEqual([true, true]);
    pair.run(513_000);
    expect([a.cm.stateOf(id), b.cm.stateOf(far)]).toEqual([undefined, undefined]);
    expect(held()).toEqual([true, true]);
    pair.run(hold - 3000);
    expect(held()).toEqual([true, true]);
    pair.run(5000);
    expect(held()).toEqual([false, false]);
    expect(a.cm.idle).toBe(true);
  });

  test('a QPN that was refused is held, too', () => {
    const pair = new Pair();
    const { a } = pair;
    pair.connect();
    pair.run(1000);
    a.take('rejected');
    expect(a.cm.size.connections).toBe(0);
    expect(a.cm.holds(0x51, pair.now)).toBe(true);
    pair.run(hold);
    expect(a.cm.holds(0x51, pair.now)).toBe(false);
  });
});
