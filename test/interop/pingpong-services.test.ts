/** `roce pingpong` and unmodified ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong on a real rxe, both ways round. */
import { afterEach, describe, expect, inject, test } from 'vitest';
import { difference, Guest } from './harness/guest.ts';
import { sampled } from './harness/pairwise.ts';
import { type PingPongTool, playPingPong, TROUBLE } from './harness/pingpong.ts';
import { WireCapture } from './harness/wire.ts';

const guest = new Guest(inject('guest9000'));
const { address } = guest;
/** Opcodes by their service: the three bits above the operation (IBTA vol 1 §9.2.1). */
const SERVICE: Record<PingPongTool, number> = { rc: 0, srq: 0, uc: 1, ud: 3 };

let capture: WireCapture | undefined;
afterEach(({ task }) => {
  if (task.result?.state === 'fail') capture?.keep(task.name);
  capture?.discard();
  capture = undefined;
});

const games: { tool: PingPongTool; mtu?: number; size: number; events?: boolean; qps?: number }[] = [
  { tool: 'uc', mtu: 1024, size: 1 },
  { tool: 'uc', mtu: 1024, size: 20_001, events: true },
  { tool: 'uc', mtu: 4096, size: 65_537 },
  { tool: 'ud', size: 1 },
  { tool: 'ud', size: 1023, events: true },
  { tool: 'ud', size: 4096 },
  { tool: 'srq', mtu: 1024, size: 4096, qps: 16 },
  { tool: 'srq', mtu: 4096, size: 20_001, qps: 3, events: true },
];
const cases = sampled(
  ([4, 6] as const).flatMap((version) =>
    (['server', 'client'] as const).flatMap((role) => games.map((game) => ({ version, role, ...game }))),
  ),
);

describe.each(cases)('$tool, IPv$version, we are the $role: $size bytes, events $events', (c) => {
  // A datagram or a UC message that a shared machine drops for want of a buffer is not retransmitted.
  test('messages go both ways, every ICRC right, no counter of trouble moves', { retry: 2 }, async () => {
    const { tool, version, mtu, size, qps = 1 } = c;
    const iters = 50;
    const host = version === 4 ? address.hostIp4 : address.hostIp6;
    const before = await guest.counters();
    capture?.discard();
    capture = await WireCapture.start(address);
    const { report } = await playPingPong(guest, { ...c, iters, patience: 10 });
    const packets = await capture.stop();
    expect(report).toMatchObject({ type: tool === 'srq' ? 'rc' : tool, icrcErrors: 0 });
    expect(packets.filter((p) => !p.icrcOk)).toEqual([]);
    expect(packets.filter((p) => p.opcode >> 5 !== SERVICE[tool])).toEqual([]);
    const destinations = (source: boolean) =>
      new Set(packets.filter((p) => (p.source === host) === source).map((p) => p.destQp));
    expect([destinations(true).size, destinations(false).size]).toEqual([qps, qps]);
    if (tool === 'uc' || tool === 'ud') {
      // Nobody answers or asks for it: there are the messages' packets and nothing else, without AckReq.
      expect(packets).toHaveLength(2 * iters * Math.ceil(size / (mtu ?? 4096)));
      expect(packets.filter((p) => p.payload[8] >> 7 === 1)).toEqual([]);
    }
    const moved = difference(before, await guest.counters());
    expect(
      Object.keys(moved).filter((name) => TROUBLE.includes(name)),
      JSON.stringify(moved),
    ).toEqual([]);
  });
});
