/**
 * The AF_XDP link over a cable between two network namespaces. Needs root and iproute2; with ROCE_ROOT_TESTS set, as in
 * .ci/run, it fails without them. ROCE_XDP_REQUESTS is the number of requests of each exchange (90).
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { exchange, makeCable } from './xdp/cable.ts';

const REQUESTS = Number(process.env.ROCE_XDP_REQUESTS ?? 90);
const BYTES = 20_000;
const SLOW = 120_000;
const cable = makeCable('roce-xdp');
const { setMtu, ends } = { setMtu: (bytes: number) => cable!.mtu(bytes), ends: cable?.ends ?? [] };
const address = (end: 0 | 1) => ends[end].address;
const all = { SEND: REQUESTS / 3, RDMA_WRITE: REQUESTS / 3, RDMA_READ: REQUESTS / 3, RECV: REQUESTS / 3 };

afterAll(() => cable?.[Symbol.dispose]());

describe.skipIf(!cable)('between two namespaces', () => {
  beforeAll(() => setMtu(1500));

  test.each([
    ['native', 'udp'],
    ['generic', 'udp'],
    ['native', 'xdp'],
    ['generic', 'xdp'],
  ] as const)(
    'path MTU 1024 over IPv4, mode %s, to the %s link',
    async (xdpMode, other) => {
      const { opened, results } = await exchange(cable!, [
        { device: { address: address(0), link: 'xdp', xdpMode }, requests: REQUESTS, bytes: BYTES },
        {
          device: { address: address(1), link: other, ...(other === 'xdp' ? { xdpMode } : {}) },
          requests: REQUESTS,
          bytes: BYTES,
        },
      ]);
      expect(opened.map(({ link, activeMtu }) => [link, activeMtu])).toEqual([
        ['xdp', 1024],
        [other, 1024],
      ]);
      for (const { counts, wrong, icrcErrors } of results) {
        expect(counts).toEqual(all);
        expect(wrong).toBe(0);
        expect(icrcErrors).toBe(0);
      }
      expect(results[0].link.rxPackets).toBeGreaterThan(REQUESTS);
      // Runs of the other side's come whole where the driver does not cut them.
      if (xdpMode === 'generic' && other === 'udp') expect(results[0].link.superPackets).toBeGreaterThan(0);
    },
    SLOW,
  );
});
