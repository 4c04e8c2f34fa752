/** Connections of XRC queue pairs (IBTA vol 1 annex A14; Linux core/cm.c). */
import { type CmMessage, CmRejReason, decodeCm } from '@node-roce/wire';
import { expect, test } from 'vitest';
import { acceptInit, Pair, SERVICE } from '../testing/pair.ts';

const INI = 0x51;
const TGT = 0x61;

/** An initiator asks, a target is offered; returns their messages. */
function establish(pair = new Pair(1, { xrc: true })) {
  const said: CmMessage[] = [];
  const { network } = pair;
  pair.network = (flight) => {
    const parsed = decodeCm(flight.mad);
    if (parsed.ok) said.push(parsed.message);
    return network(flight);
  };
  pair.b.cm.listen(SERVICE);
  const id = pair.connect({
    transport: 'XRC',
    qpn: INI,
    srq: true,
    retryCount: 5,
    rnrRetryCount: 6,
    responderResources: 3,
  });
  pair.run(1000);
  const request = pair.b.take('request');
  pair.b.cm.accept(request.id, acceptInit({ qpn: TGT, endToEndFlowControl: true }), pair.now);
  pair.run(1000);
  const { reply } = pair.a.take('response');
  pair.a.cm.ready(id);
  pair.run(1000);
  return { pair, said, id, other: request.id, request: request.request, reply };
}

test('REQ has transport 3 and extended transport 1, and nothing that an initiator can not serve', () => {
  const { request } = establish();
  expect(request).toMatchObject({
    transportService: 3,
    extendedTransport: 1,
    localQpn: INI,
    srq: false,
    responderResources: 0,
    retryCount: 0,
    rnrRetryCount: 0,
    initiatorDepth: 1,
  });
});

test('REP names the target in the place of the EE context, with the SRQ bit', () => {
  const { reply, pair } = establish();
  expect(reply).toMatchObject({
    localQpn: 0,
    localEecn: TGT,
    srq: true,
    responderResources: 1,
    initiatorDepth: 0,
    endToEndFlowControl: false,
  });
  expect([pair.a.heard(), pair.b.heard()]).toEqual([['established'], ['established']]);
});

test('DREQ names the queue pair of the other side', () => {
  const { pair, id, said, other } = establish();
  pair.a.cm.disconnect(id, pair.now);
  pair.run(1000);
  expect(said.at(-1)).toMatchObject({ name: 'DREQ', remoteQpn: TGT });
  pair.b.take('established');
  expect(pair.b.take('disconnected')).toMatchObject({ id: other, cause: 'peer-closed' });
  pair.b.cm.disconnect(other, pair.now);
  pair.run(1000);
  expect(pair.a.take('disconnected')).toMatchObject({ id, cause: 'peer-closed' });
});

test('a target that is released sends nothing; an initiator sends DREQ', () => {
  const target = establish();
  target.pair.said();
  target.pair.b.cm.destroy(target.other, target.pair.now);
  target.pair.run(1000);
  expect(target.pair.said()).toEqual([]);
  expect(target.pair.b.cm.size).toEqual({ connections: 0, pending: 0, keys: 0, timers: 0 });

  const initiator = establish();
  initiator.pair.said();
  initiator.pair.a.cm.destroy(initiator.id, initiator.pair.now);
  initiator.pair.run(1000);
  expect(initiator.pair.said()[0]).toBe('0 DREQ');
});

test('refused with INVALID_TRANSPORT_TYPE where XRC is not enabled', () => {
  const pair = new Pair();
  pair.b.cm.listen(SERVICE);
  pair.connect({ transport: 'XRC' });
  pair.run(1000);
  expect(pair.a.take('rejected').reject.reason).toBe(CmRejReason.INVALID_TRANSPORT_TYPE);
});

test('MADs that are lost are repeated', () => {
  const pair = new Pair(3, { xrc: true });
  let n = 0;
  pair.network = () => (n++ % 3 === 0 ? [] : [100]);
  pair.b.cm.listen(SERVICE);
  const id = pair.connect({ transport: 'XRC' });
  pair.run(60_000_000);
  const { id: other } = pair.b.take('request');
  pair.b.cm.accept(other, acceptInit({ qpn: TGT }), pair.now);
  pair.run(60_000_000);
  pair.a.take('response');
  pair.a.cm.ready(id);
  pair.run(60_000_000);
  expect([pair.a.cm.stateOf(id), pair.b.cm.stateOf(other)]).toEqual(['ESTABLISHED', 'ESTABLISHED']);
});
