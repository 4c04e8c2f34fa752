/** Specifications of flows, on frames: what each lets pass, whatever the tags and the IP version (ibv_create_flow(3)). */
import { passesRule } from '@node-roce/transport';
import { expect, test } from 'vitest';
import { flowRules } from './flow-rules.ts';
import type { ibv_flow_spec } from './flow-specs.ts';
import * as v from './index.ts';

const MAC = [0x66, 0x11, 0x22, 0x33, 0x44, 0x55];
const OTHER = [2, 0, 0, 0, 0, 1];
const ALL6 = [255, 255, 255, 255, 255, 255];

interface FrameInit {
  to?: number[];
  vlan?: number;
  /** IPv4 or IPv6, or an EtherType. */
  kind?: 4 | 6 | number;
  proto?: number;
  ports?: [from: number, to: number];
  /** The IPv4 header is longer by an option. */
  option?: boolean;
  fragment?: number;
}

const u16 = (n: number) => [n >> 8, n & 0xff];

/** A frame from OTHER: 10.0.0.1 to 10.0.0.2, or fd00::1 to fd00::2, TTL 64. */
function frame({
  to = MAC,
  vlan,
  kind = 4,
  proto = 17,
  ports = [1000, 4791],
  option,
  fragment = 0,
}: FrameInit = {}) {
  const ethertype = kind === 4 ? 0x0800 : kind === 6 ? 0x86dd : kind;
  const ip4 = [
    option ? 0x46 : 0x45,
    0x20,
    0,
    40,
    0,
    1,
    ...u16(fragment),
    64,
    proto,
    0,
    0,
    10,
    0,
    0,
    1,
    10,
    0,
    0,
    2,
  ];
  const ip6 = [
    0x62,
    0x01,
    0x23,
    0x45,
    0,
    8,
    proto,
    64,
    0xfd,
    ...Array(14).fill(0),
    1,
    0xfd,
    ...Array(14).fill(0),
    2,
  ];
  const ip = kind === 4 ? [...ip4, ...(option ? [1, 1, 1, 1] : [])] : kind === 6 ? ip6 : [];
  const tag = vlan === undefined ? [] : [0x81, 0x00, ...u16(vlan)];
  return Uint8Array.from([
    ...to,
    ...OTHER,
    ...tag,
    ...u16(ethertype),
    ...ip,
    ...u16(ports[0]),
    ...u16(ports[1]),
    0,
    8,
  ]);
}

const passes = (specs: ibv_flow_spec[], init: FrameInit) => {
  const bytes = frame(init);
  // In a slab, as frames are.
  const slab = new Uint8Array(200).fill(0xee);
  slab.set(bytes, 17);
  const holding = flowRules(specs).filter((rule) => passesRule(rule, slab, 17, bytes.length));
  // A frame is counted once: no two rules of a flow hold for it.
  expect(holding.length).toBeLessThan(2);
  return holding.length === 1;
};

const {
  IBV_FLOW_SPEC_ETH,
  IBV_FLOW_SPEC_IPV4,
  IBV_FLOW_SPEC_IPV4_EXT,
  IBV_FLOW_SPEC_IPV6,
  IBV_FLOW_SPEC_UDP,
} = v;
const udp: ibv_flow_spec = { type: IBV_FLOW_SPEC_UDP, val: { dst_port: 4791 }, mask: { dst_port: 0xffff } };
const ip4: ibv_flow_spec = {
  type: IBV_FLOW_SPEC_IPV4,
  val: { src_ip: 0x0a000001 },
  mask: { src_ip: 0xffffffff },
};

test.each<[string, ibv_flow_spec[], yes: FrameInit[], no: FrameInit[]]>([
  ['nothing', [], [{}, { kind: 6 }, { vlan: 5 }, { kind: 0x0806 }], []],
  [
    'a destination address',
    [{ type: IBV_FLOW_SPEC_ETH, val: { dst_mac: MAC }, mask: { dst_mac: ALL6 } }],
    [{}, { vlan: 5 }, { kind: 0x0806 }],
    [{ to: OTHER }],
  ],
  [
    'bits of an address',
    [
      {
        type: IBV_FLOW_SPEC_ETH,
        val: { dst_mac: [1, 0, 0, 0, 0, 0] },
        mask: { dst_mac: [1, 0, 0, 0, 0, 0] },
      },
    ],
    [{ to: [0x33, 0x33, 0, 0, 0, 1] }],
    [{}],
  ],
  [
    'an EtherType, behind a tag as well',
    [{ type: IBV_FLOW_SPEC_ETH, val: { ether_type: 0x0806 }, mask: { ether_type: 0xffff } }],
    [{ kind: 0x0806 }, { kind: 0x0806, vlan: 5 }],
    [{}, { vlan: 0x806 }],
  ],
  [
    'a VLAN, whatever its priority',
    [{ type: IBV_FLOW_SPEC_ETH, val: { vlan_tag: 5 }, mask: { vlan_tag: 0x0fff } }],
    [{ vlan: 5 }, { vlan: 0x6005 }],
    [{}, { vlan: 6 }],
  ],
  ['an IPv4 source', [ip4], [{}, { vlan: 5 }, { option: true }], [{ kind: 6 }, { kind: 0x0806 }]],
  [
    'fields of IPv4',
    [
      {
        type: IBV_FLOW_SPEC_IPV4_EXT,
        val: { dst_ip: 0x0a000002, proto: 17, tos: 0x20, ttl: 64, flags: 2 },
        mask: { dst_ip: 0xffffff00, proto: 255, tos: 255, ttl: 255, flags: 7 },
      },
    ],
    [{ fragment: 0x4000 }],
    [{}, { fragment: 0x4000, proto: 6 }, { fragment: 0x2000 }],
  ],
  [
    'fields of IPv6',
    [
      {
        type: IBV_FLOW_SPEC_IPV6,
        val: {
          dst_ip: [0xfd, ...Array(14).fill(0), 2],
          flow_label: 0x12345,
          traffic_class: 0x20,
          next_hdr: 17,
          hop_limit: 64,
        },
        mask: {
          dst_ip: Array(16).fill(255),
          flow_label: 0xfffff,
          traffic_class: 0xff,
          next_hdr: 255,
          hop_limit: 255,
        },
      },
    ],
    [{ kind: 6 }, { kind: 6, vlan: 1 }],
    [{}, { kind: 6, proto: 6 }],
  ],
  [
    'a UDP port, of either IP version',
    [udp],
    [{}, { kind: 6 }, { vlan: 5 }, { kind: 6, vlan: 5 }],
    [{ proto: 6 }, { ports: [4791, 1000] }, { option: true }, { fragment: 1 }, { kind: 0x0806 }],
  ],
  ['a UDP port behind an IPv4 source', [ip4, udp], [{}], [{ kind: 6 }, { ports: [1, 2] }]],
])('%s', (_, specs, yes, no) => {
  for (const init of yes) expect(passes(specs, init), JSON.stringify(init)).toBe(true);
  for (const init of no) expect(passes(specs, init), JSON.stringify(init)).toBe(false);
});

test.each<[string, unknown[], string, string]>([
  ['a second IP version', [ip4, { type: IBV_FLOW_SPEC_IPV6 }], 'EINVAL', 'specs[1].type'],
  ['a second layer of ports', [udp, udp], 'EINVAL', 'specs[1].type'],
  ['a tunnel', [{ type: v.IBV_FLOW_SPEC_VXLAN_TUNNEL }], 'EOPNOTSUPP', 'specs[0].type'],
  ['an inner header', [{ type: IBV_FLOW_SPEC_ETH | v.IBV_FLOW_SPEC_INNER }], 'EOPNOTSUPP', 'specs[0].type'],
  ['no specification', [undefined], 'EOPNOTSUPP', 'specs[0].type'],
  ['a short address', [{ type: IBV_FLOW_SPEC_ETH, mask: { dst_mac: [255] } }], 'EINVAL', 'specs'],
])('%s is refused', (_, specs, errno, attribute) => {
  expect(() => flowRules(specs as ibv_flow_spec[])).toThrow(expect.objectContaining({ errno, attribute }));
});
