import { beforeEach, describe, expect, test } from 'vitest';
import { CmModel } from './cm.ts';
import { decodeCm, encodeCm } from './mad.ts';
import { type CmState, ON_CALL, ON_INPUT, ON_TIMEOUT } from './states.ts';

const SERVICE = 0x0106_1c06n;
const REQ = {
  pkey: 0xffff,
  serviceId: SERVICE,
  qpn: 0x51,
  maxCmRetries: 3,
  remoteResponseTimeout: 10,
  localResponseTimeout: 10,
  primaryAckTimeout: 8,
};
const GID = { a: Uint8Array.of(1), b: Uint8Array.of(2) };
type Name = 'a' | 'b';

/** Two models and a network that delivers at once, but for what `loses` names. */
class Two {
  readonly a: CmModel;
  readonly b: CmModel;
  now = 0;
  log: string[] = [];
  loses: (what: string) => boolean = () => false;

  constructor() {
    let draw = 100;
    const random = () => draw++;
    this.a = new CmModel({ caGuid: 0xan, random });
    this.b = new CmModel({ caGuid: 0xbn, random });
    this.b.listen(SERVICE);
  }

  /** Delivers the messages on their way, and the answers to them. */
  settle(): void {
    for (let round = 0; round < 20; round++) {
      for (const [from, to] of [
        ['a', 'b'],
        ['b', 'a'],
      ] as [Name, Name][]) {
        for (const { bytes } of this[from].take()) {
          const message = decodeCm(bytes);
          const what = `${from} ${typeof message === 'string' ? message : message.name}`;
          const isLost = this.loses(what);
          this.log.push(isLost ? `${what} lost` : what);
          if (!isLost) this[to].receive(bytes, GID[from], this.now);
        }
      }
    }
  }

  /** Lets timers fire until none runs. */
  finish(): void {
    for (let turn = 0; turn < 1000; turn++) {
      const next = Math.min(this.a.nextDeadline(), this.b.nextDeadline());
      if (next === Infinity) return;
      this.now = next;
      this.a.advance(next);
      this.b.advance(next);
      this.settle();
    }
    throw new Error('the timers never end');
  }

  connect(): number {
    const handle = this.a.connect(GID.b, REQ, this.now);
    this.settle();
    return handle;
  }

  /** Both ends of an established connection. */
  establish(): { a: number; b: number } {
    const a = this.connect();
    const b = this.b.events.at(-1)!.handle;
    this.b.accept(b, { qpn: 0x61 }, this.now);
    this.settle();
    this.a.ready(a, this.now);
    this.settle();
    return { a, b };
  }

  expectNothingLeft(): void {
    expect([this.a.connections.size, this.b.connections.size]).toEqual([0, 0]);
  }
}

const kinds = (model: CmModel) =>
  model.events.map(({ kind, reason }) => (reason ? `${kind} ${reason}` : kind));

let two: Two;
beforeEach(() => {
  two = new Two();
});

describe('a connection', () => {
  test('begins and ends', () => {
    const { a, b } = two.establish();
    expect([two.a.state(a), two.b.state(b)]).toEqual(['ESTABLISHED', 'ESTABLISHED']);
    two.a.disconnect(a, 0);
    two.settle();
    two.b.disconnect(b, 0);
    two.settle();
    expect(two.log).toEqual(['a REQ', 'b REP', 'a RTU', 'a DREQ', 'b DREP']);
    expect([two.a.state(a), two.b.state(b)]).toEqual(['TIMEWAIT', 'TIMEWAIT']);
    two.finish();
    two.expectNothingLeft();
    expect(kinds(two.a)).toEqual(['reply', 'established', 'disconnected', 'gone']);
    expect(kinds(two.b)).toEqual(['request', 'established', 'disconnecting', 'gone']);
    expect([...two.a.complaints, ...two.b.complaints]).toEqual([]);
  });

  test('takes a copy of the REP for a lost RTU', () => {
    two.loses = (what) => what === 'a RTU' && !two.log.includes('a RTU lost');
    const { b } = two.establish();
    expect(two.b.state(b)).toBe('REP_SENT');
    two.now = two.b.nextDeadline();
    two.b.advance(two.now);
    two.settle();
    expect(two.log.slice(2)).toEqual(['a RTU lost', 'b REP', 'a RTU']);
    expect(two.b.state(b)).toBe('ESTABLISHED');
  });

  test('is established by data; the late RTU does nothing', () => {
    two.loses = (what) => what === 'a RTU';
    const { b } = two.establish();
    two.b.dataArrived(b, 0);
    expect(two.b.state(b)).toBe('ESTABLISHED');
  });

  test('gives up after all retries, and takes its REQ back', () => {
    two.loses = (what) => what !== 'a REJ';
    two.connect();
    two.finish();
    expect(two.log).toEqual([...Array(4).fill('a REQ lost'), 'a REJ']);
    expect(kinds(two.a)).toEqual(['unreachable', 'gone']);
    two.expectNothingLeft();
  });

  test('whose REQ was taken back ends at the peer, by CA GUID', () => {
    const a = two.connect();
    two.a.destroy(a, 0);
    two.settle();
    expect(kinds(two.b)).toEqual(['request', 'rejected 4', 'gone']);
    two.expectNothingLeft();
  });

  test('that is stale for its peer rests once it has named a queue pair', () => {
    const end = (accepts: boolean) => {
      const localId = two.a.connections.get(two.connect())!.localId;
      const { handle } = two.b.events.at(-1)!;
      const remoteId = two.b.connections.get(handle)!.localId;
      if (accepts) two.b.accept(handle, { qpn: 0x61 }, 0);
      two.b.receive(encodeCm('REJ', 1n, { localId, remoteId, rejected: 2, reason: 10 }), GID.a, 0);
      return two.b.state(handle);
    };
    expect([end(false), end(true)]).toEqual(['NONE', 'TIMEWAIT']);
  });

  test('waits for the time in MRA', () => {
    two.connect();
    const b = two.b.events.at(-1)!.handle;
    two.b.mra(b, 14, 0);
    two.settle();
    expect(two.a.nextDeadline()).toBeCloseTo(4.096 * 2 ** 14 + 4.096 * 2 ** 7);
    two.b.accept(b, { qpn: 7 }, 0);
    two.settle();
    expect(kinds(two.a)).toEqual(['reply']);
  });

  test('that both sides end at once ends on both', () => {
    const { a, b } = two.establish();
    two.a.disconnect(a, 0);
    two.b.disconnect(b, 0);
    two.settle();
    two.a.disconnect(a, 0);
    two.b.disconnect(b, 0);
    two.settle();
    expect(two.log.slice(3).sort()).toEqual(['a DREP', 'a DREQ', 'b DREP', 'b DREQ']);
    two.finish();
    two.expectNothingLeft();
  });

  test('ends without an answer to DREQ', () => {
    const { a, b } = two.establish();
    two.loses = () => true;
    two.a.disconnect(a, 0);
    two.settle();
    two.b.destroy(b, 0);
    two.finish();
    two.expectNothingLeft();
    expect(two.log.filter((what) => what === 'a DREQ lost').length).toBe(4);
  });
});

describe('a REQ', () => {
  test.each([
    [0x1234, ['rejected 12', 'gone']],
    [0x7fff, []],
  ])('of the partition %i', (pkey, expected) => {
    two.a.connect(GID.b, { ...REQ, pkey }, two.now);
    two.settle();
    expect(kinds(two.a)).toEqual(expected);
    expect(two.b.connections.size).toBe(expected.length > 0 ? 0 : 1);
  });

  test('for nobody is rejected by reason 8', () => {
    two.b.unlisten(SERVICE);
    two.connect();
    expect(kinds(two.a)).toEqual(['rejected 8', 'gone']);
  });

  test('from a queue pair that is connected is rejected by reason 10; the old connection ends', () => {
    two.establish();
    const restarted = new CmModel({ caGuid: 0xan, random: () => 7 });
    restarted.connect(GID.b, REQ, 0);
    const [{ bytes }] = restarted.take();
    two.b.receive(bytes, GID.a, 0);
    const sent = two.b.take().map((out) => decodeCm(out.bytes));
    expect(sent).toMatchObject([
      { name: 'REJ', reason: 10, remoteId: 7 },
      { name: 'DREQ', qpn: REQ.qpn },
    ]);
    expect(kinds(two.b).at(-1)).toBe('disconnected 10');
  });

  test('that comes twice is one connection', () => {
    two.a.connect(GID.b, REQ, 0);
    const [{ bytes }] = two.a.take();
    for (let copy = 0; copy < 3; copy++) two.b.receive(bytes, GID.a, 0);
    expect(kinds(two.b)).toEqual(['request']);
    expect(two.b.connections.size).toBe(1);
  });
});

test('DREQ: unknown ids get a DREP, another queue pair is ignored', () => {
  const { a } = two.establish();
  two.a.disconnect(a, 0);
  const [{ bytes }] = two.a.take();
  const forged = bytes.slice();
  forged[24 + 10] ^= 1;
  two.b.receive(forged, GID.a, 0);
  expect(kinds(two.b).at(-1)).toBe('established');
  const stranger = bytes.slice();
  stranger[24] ^= 0x80;
  two.b.receive(stranger, GID.a, 0);
  expect(two.b.take().map((out) => decodeCm(out.bytes))).toMatchObject([{ name: 'DREP' }]);
});

test('LAP is answered: unsupported', () => {
  const { a } = two.establish();
  two.a.loadAlternatePath(a, {}, 0);
  two.settle();
  expect(two.log.slice(3)).toEqual(['a LAP', 'b APR']);
  expect(two.a.nextDeadline()).toBe(Infinity);
});

describe('service id resolution', () => {
  const ask = () => two.a.sidr.ask(GID.b, { serviceId: SERVICE }, { timeout: 10, retries: 2 }, 0);

  test('answers a question once', () => {
    const requestId = ask();
    two.settle();
    two.b.sidr.answer(two.b.sidr.requests[0].handle, { qpn: 5, qkey: 6 });
    two.settle();
    expect(two.a.sidr.answers).toMatchObject([{ requestId, message: { qpn: 5, qkey: 6, status: 0 } }]);
    expect([two.a.sidr.asked.size, two.b.sidr.pending.size]).toEqual([0, 0]);
  });

  test('ends without an answer', () => {
    two.loses = () => true;
    const requestId = ask();
    two.settle();
    two.finish();
    expect(two.log.length).toBe(3);
    expect(two.a.sidr.answers).toEqual([{ requestId }]);
  });

  test('rejects a request that nobody listens for', () => {
    two.b.unlisten(SERVICE);
    ask();
    two.settle();
    expect(two.a.sidr.answers).toMatchObject([{ message: { status: 1 } }]);
  });
});

describe('the tables', () => {
  const states = Object.keys(ON_INPUT) as CmState[];

  test('every state is left by a timer, a call, or both', () => {
    for (const state of states) {
      const calls = Object.keys(ON_CALL[state]);
      expect(calls.length > 0 || state in ON_TIMEOUT || state === 'TIMEWAIT', state).toBe(true);
    }
  });

  test('every state can be reached', () => {
    const reached = new Set<string | undefined>(['REQ_SENT', 'REQ_RCVD']);
    for (const state of states) {
      for (const { to } of Object.values(ON_INPUT[state])) reached.add(to);
      for (const { to } of Object.values(ON_CALL[state])) reached.add(to);
    }
    for (const state of states) expect(reached.has(state), state).toBe(true);
  });
});
