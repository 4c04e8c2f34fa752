/**
 * READs that are split into large requests: which ones are, and that each keeps its division for as long as it lives. Judged by the requests on the wire, and by
 * the places where a response may be LAST (IBTA vol 1 §9.7.5.1).
 */
import { BTH_BYTES, bthOpcode, NakCode, Opcode, psnAdd, psnDiff, rethLength } from '@node-roce/wire';
import { describe, expect, test } from 'vitest';
import { ByHand, type PacketInit } from '../../testing/by-hand.ts';

const FIRST = 0xff_ff00;
const MTU = 256;
/** Packets of the WRITE that opens the window. */
const OPENING = 512;
/** Responses that a large request asks for. */
const SIZE = 256;
/** Responses of a READ here. */
const RESPONSES = 300;
const remote = { addr: 0n, rkey: 0 };
const { RC_RDMA_READ_RESPONSE_FIRST, RC_RDMA_READ_RESPONSE_MIDDLE, RC_RDMA_READ_RESPONSE_LAST } = Opcode;

function setUp({ attr = {}, selective = true, receiveBuffer = 1 << 20 } = {}) {
  const recovery = { selective, probes: false };
  const hand = new ByHand({ sqPsn: FIRST, pathMtu: MTU, timeout: 14, ...attr }, { receiveBuffer, recovery });
  const { side } = hand;
  const mr = side.register(new ArrayBuffer(OPENING * MTU));
  const post = (opcode: 'SEND' | 'RDMA_WRITE' | 'RDMA_READ', packets: number) =>
    side.post({ opcode, sge: [{ mr, length: packets * MTU }], remote });
  let base = FIRST;
  const ack = (packets: number, syndrome = 0x1f, msn = 0) => {
    base = psnAdd(base, packets);
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: psnAdd(base, -1), aeth: { syndrome, msn } });
  };
  /** The oldest packet that is not acknowledged was lost. */
  const nak = () =>
    hand.put({ opcode: Opcode.RC_ACKNOWLEDGE, psn: base, aeth: { syndrome: NakCode.PSN_SEQUENCE_ERROR } });
  /** All of a WRITE is acknowledged: PSNs are told from there on. */
  const open = (syndrome?: number, msn?: number) => {
    post('RDMA_WRITE', OPENING);
    for (let left = OPENING; left > 0; ) {
      const sent = hand.drain();
      left -= sent;
      ack(sent, syndrome, msn);
    }
    side.poll();
  };
  /** PSN and count of responses of each READ request among the packets. */
  const inReads = (packets: Uint8Array[]) =>
    packets
      .filter((packet) => bthOpcode(packet, 0) === Opcode.RC_RDMA_READ_REQUEST)
      .map((packet) => [
        psnDiff(new DataView(packet.buffer, packet.byteOffset).getUint32(8) & 0xff_ffff, base),
        rethLength(packet, BTH_BYTES) / MTU,
      ]);
  const requests = () => inReads(hand.out());
  /** Responses by their numbers from `from` up to `end`, of a request from `first` to `last`. */
  const responses = (
    from: number,
    end: number,
    first: number,
    last: number,
    aeth: PacketInit['aeth'],
  ): PacketInit[] =>
    Array.from({ length: end - from }, (_, i) => {
      const at = from + i;
      const inner = { opcode: RC_RDMA_READ_RESPONSE_MIDDLE };
      const edge = {
        opcode: at === first ? RC_RDMA_READ_RESPONSE_FIRST : RC_RDMA_READ_RESPONSE_LAST,
        aeth,
      };
      return {
        psn: psnAdd(base, at),
        payload: new Uint8Array(MTU),
        ...(at === first || at === last ? edge : inner),
      };
    });
  const respond = (
    from: number,
    end: number,
    first = from,
    last = end - 1,
    aeth = { syndrome: 0x1f, msn: 0 },
  ) => hand.put(...responses(from, end, first, last, aeth));
  const statuses = () => side.poll().map(({ status }) => status);
  return { hand, side, post, open, ack, nak, inReads, requests, respond, statuses };
}

const LARGE = [
  [0, 256],
  [256, 44],
];

describe('a READ asks for', () => {
  test('64 responses at a time where it began on a new connection, although the window opens meanwhile', () => {
    const { post, requests, respond } = setUp();
    post('RDMA_READ', OPENING);
    const asked = requests();
    for (let at = 0; at < OPENING; at += 64) {
      respond(at, at + 64);
      asked.push(...requests());
    }
    expect(asked).toEqual(Array.from({ length: OPENING / 64 }, (_, i) => [64 * i, 64]));
  });

  test('256 where the window is open', () => {
    const { post, requests, open } = setUp();
    open();
    post('RDMA_READ', RESPONSES);
    expect(requests()).toEqual(LARGE);
  });

  test('64 where the receive buffer does not hold 512', () => {
    const { post, requests, open } = setUp({ receiveBuffer: 212_992 });
    open();
    post('RDMA_READ', RESPONSES);
    expect(requests()[0]).toEqual([0, 64]);
  });

  test('64 while a loss is recovered from', () => {
    const { hand, post, requests, respond, open, inReads } = setUp();
    open();
    post('RDMA_READ', RESPONSES);
    requests();
    // The ACK timer runs out: what was begun goes on as it began, one request at a time.
    const again = inReads(hand.run(300_000));
    expect(again[0]).toEqual([0, SIZE]);
    respond(0, SIZE);
    expect(requests()).toEqual([[SIZE, RESPONSES - SIZE]]);
    respond(SIZE, RESPONSES);
    post('RDMA_READ', RESPONSES);
    expect(requests()[0]).toEqual([RESPONSES, 64]);
  });

  test('what is left up to the end of its request where it goes back to', () => {
    const { post, requests, respond, open } = setUp({ selective: false });
    open();
    post('RDMA_READ', RESPONSES);
    requests();
    respond(0, 70, 0, SIZE - 1);
    respond(100, 101, 0, SIZE - 1);
    expect(requests()[0]).toEqual([70, SIZE - 70]);
  });

  test('what is missing before an early response, past a multiple of 64', () => {
    const { post, requests, respond, open } = setUp();
    open();
    post('RDMA_READ', RESPONSES);
    requests();
    respond(0, 60, 0, SIZE - 1);
    respond(70, SIZE, 0, SIZE - 1);
    expect(requests()).toEqual([[60, 10]]);
  });

  test('what is missing behind early responses, however many READs may be out', () => {
    const { hand, side, post, requests, respond, open } = setUp({ attr: { maxRdAtomic: 2 } });
    open();
    post('RDMA_READ', 2 * SIZE);
    expect(requests()).toEqual([
      [0, SIZE],
      [SIZE, SIZE],
    ]);
    respond(SIZE, SIZE + 64, SIZE, 2 * SIZE - 1);
    while (side.adapter.counters().timeouts === 0) hand.run(1000);
    // Those that came are a part of the second request, and none that was sent by itself.
    respond(0, SIZE - 1, 0, SIZE - 1);
    expect(requests()).toEqual([[SIZE + 64, SIZE - 64]]);
  });

  test('what is missing, of a peer that was slow and not silent', () => {
    const { hand, side, post, requests, respond, open } = setUp();
    open();
    post('RDMA_WRITE', 4);
    post('RDMA_READ', RESPONSES);
    requests();
    while (side.adapter.counters().timeouts === 0) hand.run(1000);
    // Responses to what was sent before the timeout: it goes on from the end.
    respond(4, 64, 4, SIZE + 3);
    expect(requests()).toEqual([]);
    respond(74, SIZE + 4, 4, SIZE + 3);
    expect(requests()).toEqual([[64, 10]]);
  });

  test('all of a request that was lost, of a peer that keeps those behind it', () => {
    const { hand, post, ack, requests, open, nak } = setUp();
    for (let i = 0; i < 4; i++) post('RDMA_WRITE', 1);
    hand.drain();
    nak();
    // Beyond what it went back to: that is how the requester learns what the peer does.
    ack(4);
    // Nothing is recovered from after 65,536 packets without a loss; growing by one packet per window, it is whole after twice as many.
    for (let i = 0; i <= 131_072 / OPENING; i++) open();
    post('RDMA_READ', RESPONSES);
    expect(requests()).toEqual(LARGE);
    nak();
    expect(requests()).toEqual([[0, SIZE]]);
  });

  test('the same after its queue has moved', () => {
    const { hand, side, post, requests, open, inReads } = setUp();
    open();
    post('RDMA_READ', RESPONSES);
    requests();
    const { attr } = side.adapter.queryQp(side.qp.qpn);
    side.adapter.modifyQp(side.qp.qpn, { cap: { ...attr.cap!, maxSendWr: 256 } });
    expect(inReads(hand.run(300_000))[0]).toEqual([0, SIZE]);
  });
});

describe('of a request for 256, the last response', () => {
  test.each([
    ['and no other one is LAST', 63, 'BAD_RESP_ERR'],
    ['may come behind a run that goes past the 64th', SIZE - 1, 'SUCCESS'],
  ])('%s', (_, last, status) => {
    const { post, requests, respond, open, statuses } = setUp();
    open();
    post('RDMA_READ', SIZE);
    expect(requests()).toEqual([[0, SIZE]]);
    respond(0, SIZE, 0, last);
    expect(statuses()[0]).toBe(status);
  });
});

describe('credits (§9.7.7.2) count', () => {
  /** Code 4: four more receives. */
  const FOUR = 4;
  const sends = (packets: Uint8Array[]) =>
    packets.filter((packet) => bthOpcode(packet, 0) === Opcode.RC_SEND_ONLY).length;

  test('the requests that there are', () => {
    const { hand, post, open } = setUp();
    open(FOUR, 1);
    post('RDMA_READ', RESPONSES);
    for (let i = 0; i < 5; i++) post('SEND', 1);
    // One WRITE, two requests: the limit is five, and one may go past it.
    expect(sends(hand.out())).toBe(3);
  });

  test('those of a READ that is not started after all once', () => {
    const { hand, side, post, requests, respond, open, inReads } = setUp({ attr: { maxRdAtomic: 1 } });
    open(FOUR, 1);
    post('RDMA_READ', 64);
    post('RDMA_READ', RESPONSES);
    expect(requests()).toEqual([[0, 64]]);
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'SQD' });
    respond(0, 64, 0, 63, { syndrome: FOUR, msn: 2 });
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'SQD', maxRdAtomic: 16 });
    side.adapter.modifyQp(side.qp.qpn, { qpState: 'RTS' });
    for (let i = 0; i < 5; i++) post('SEND', 1);
    const packets = hand.out();
    expect(inReads(packets)).toEqual(LARGE.map(([psn, count]) => [64 + psn, count]));
    // One WRITE, a request and two: the limit is six.
    expect(sends(packets)).toBe(3);
  });
});
