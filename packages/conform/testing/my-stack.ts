import {
  decodePacket,
  type Endpoint,
  type EndpointFactory,
  encodePacket,
  type SimPacket,
} from '@node-roce/sim';

/** Takes WRITEs of one packet. Its fault: a NAK for each packet behind a gap. */
export const myEndpoint: EndpointFactory = ({ gid, psn, arenaBytes }) => {
  const arena = new Uint8Array(arenaBytes);
  const info = { gid, qpn: 0x11, psn, rkey: 0x1234, base: 0x1000n };
  const out: SimPacket[] = [];
  let peer = { gid, qpn: 0 };
  let expected = 0;
  let msn = 0;

  function answer(at: number, syndrome: number): void {
    const bth = { opcode: 0x11, destQpn: peer.qpn, psn: at, ackReq: false, solicited: false, pkey: 0xffff };
    const bytes = encodePacket({ ...bth, aeth: { syndrome, msn }, payload: new Uint8Array(0) });
    out.push({
      bytes,
      source: gid,
      destination: peer.gid,
      trafficClass: 0,
      sourcePort: 0xc000,
      corrupt: false,
    });
  }

  function take({ bytes, corrupt }: SimPacket): void {
    const decoded = decodePacket(bytes);
    if (corrupt || !decoded.ok || decoded.packet.destQpn !== info.qpn) return;
    const { psn: at, reth, payload } = decoded.packet;
    if (at === expected && reth !== undefined) {
      // A WRITE of no bytes may have any address.
      if (payload.length > 0) arena.set(payload, Number(reth.va - info.base));
      expected = (expected + 1) & 0xff_ffff;
      msn++;
    }
    const isAhead = ((at - expected) & 0xff_ffff) < 0x80_0000;
    if (isAhead) answer(expected, 0x60);
    else answer((expected - 1) & 0xff_ffff, 0x1f);
  }

  return {
    arena,
    info,
    gid,
    state: 'RTS',
    connect(other) {
      peer = other;
      expected = other.psn;
    },
    receive: (packets) => packets.forEach(take),
    transmit: () => out.splice(0),
    // It requests nothing, has no receives and no timers.
    postSend() {},
    postReceive() {},
    pollSend: () => [],
    pollReceive: () => [],
    fail() {},
    advance() {},
    nextDeadline: () => Number.POSITIVE_INFINITY,
  } satisfies Endpoint;
};
