/** Rules for frames of a flow's specifications: bytes that a frame has to have, at the places where the headers are. */
import { type FrameMatch, type FrameRule, invalid, RoceError } from '@node-roce/transport';
import * as c from './constants.ts';
import type { ibv_flow_spec, ibv_flow_spec_eth, ibv_flow_spec_ip4, ibv_flow_spec_ip6 } from './flow-specs.ts';

const ETHER_TYPE_AT = 12;
const TAG_BYTES = 4;
const VLAN = 0x8100;
const IP4 = 0x0800;
const IP6 = 0x86dd;
/** IP protocol numbers of the layers above. */
const PROTOCOLS = new Map([
  [c.IBV_FLOW_SPEC_TCP, 6],
  [c.IBV_FLOW_SPEC_UDP, 17],
]);

/** Collects the matches of one rule. */
class Rule {
  readonly matches: FrameMatch[] = [];

  /** `bytes` bytes at an offset, big-endian; a mask of zeros asks for nothing. */
  number(offset: number, bytes: number, value: number, mask = 2 ** (8 * bytes) - 1): void {
    if (mask === 0) return;
    const ofWord = (word: number) =>
      Uint8Array.from({ length: bytes }, (_, i) => word / 2 ** (8 * (bytes - 1 - i)));
    this.matches.push({ offset, value: ofWord(value), mask: ofWord(mask) });
  }

  bytes(offset: number, value: Uint8Array, mask: Uint8Array): void {
    if (mask.some((byte) => byte !== 0))
      this.matches.push({ offset, value: value.slice(), mask: mask.slice() });
  }
}

/** Specifications of a flow: at most one of each layer. */
interface Layers {
  eth?: ibv_flow_spec_eth;
  ip4?: ibv_flow_spec_ip4;
  ip6?: ibv_flow_spec_ip6;
  ports?: Extract<ibv_flow_spec, { type: typeof c.IBV_FLOW_SPEC_TCP | typeof c.IBV_FLOW_SPEC_UDP }>;
}

/**
 * The rules of which one has to hold: frames with and without a VLAN tag where none is asked for, both IP versions where ports alone are.
 * Headers of IPv4 with options have their ports elsewhere, and are not found by ports; nor are fragments but the first. Throws EINVAL for
 * two specifications of a layer, EOPNOTSUPP for what is not matched here.
 */
export function flowRules(specs: readonly ibv_flow_spec[]): FrameRule[] {
  const layers = layersOf(specs);
  const { eth, ip4, ip6, ports } = layers;
  const needsType = ip4 || ip6 || ports || masked(eth, 'ether_type');
  const tags = masked(eth, 'vlan_tag') ? [1] : needsType ? [0, 1] : [0];
  const versions = ip4 ? [4] : ip6 ? [6] : ports ? [4, 6] : [0];
  return tags.flatMap((tag) => versions.map((version) => ruleOf(layers, tag, version).matches));
}

const masked = (eth: ibv_flow_spec_eth | undefined, name: 'ether_type' | 'vlan_tag') =>
  (eth?.mask?.[name] ?? 0) !== 0;

function layersOf(specs: readonly ibv_flow_spec[]): Layers {
  const layers: Layers = {};
  const put = <K extends keyof Layers>(key: K, spec: Layers[K], i: number) => {
    const isIp = key === 'ip4' || key === 'ip6';
    if (layers[key] || (isIp && (layers.ip4 || layers.ip6)))
      throw invalid(`specs[${i}].type`, 'a second specification of its layer', 'one of each layer');
    layers[key] = spec;
  };
  for (const [i, spec] of specs.entries()) {
    switch (spec?.type) {
      case c.IBV_FLOW_SPEC_ETH:
        put('eth', spec, i);
        break;
      case c.IBV_FLOW_SPEC_IPV4:
      case c.IBV_FLOW_SPEC_IPV4_EXT:
        put('ip4', spec, i);
        break;
      case c.IBV_FLOW_SPEC_IPV6:
        put('ip6', spec, i);
        break;
      case c.IBV_FLOW_SPEC_TCP:
      case c.IBV_FLOW_SPEC_UDP:
        put('ports', spec, i);
        break;
      case c.IBV_FLOW_SPEC_ACTION_COUNT:
        break;
      default:
        throw new RoceError(
          'ERR_ROCE_NOT_SUPPORTED',
          `specs[${i}].type: 0x${Number((spec as { type?: number })?.type).toString(16)}`,
          {
            errno: 'EOPNOTSUPP',
            attribute: `specs[${i}].type`,
            expected: 'IBV_FLOW_SPEC_ETH, _IPV4, _IPV4_EXT, _IPV6, _TCP, _UDP, _ACTION_COUNT',
          },
        );
    }
  }
  return layers;
}

function ruleOf({ eth, ip4, ip6, ports }: Layers, tag: number, version: number): Rule {
  const rule = new Rule();
  const typeAt = ETHER_TYPE_AT + tag * TAG_BYTES;
  const at = typeAt + 2;
  if (eth) {
    const { val = {}, mask = {} } = eth;
    rule.bytes(0, address(val.dst_mac, 6), address(mask.dst_mac, 6));
    rule.bytes(6, address(val.src_mac, 6), address(mask.src_mac, 6));
    if (tag === 1) rule.number(ETHER_TYPE_AT, 2, VLAN);
    rule.number(ETHER_TYPE_AT + 2, 2, val.vlan_tag ?? 0, mask.vlan_tag ?? 0);
    rule.number(typeAt, 2, val.ether_type ?? 0, mask.ether_type ?? 0);
  } else if (tag === 1) rule.number(ETHER_TYPE_AT, 2, VLAN);
  if (version !== 0) rule.number(typeAt, 2, version === 4 ? IP4 : IP6);
  if (ip4) {
    const { val = {}, mask = {} } = ip4;
    rule.number(at + 1, 1, val.tos ?? 0, mask.tos ?? 0);
    rule.number(at + 6, 1, (val.flags ?? 0) << 5, ((mask.flags ?? 0) << 5) & 0xe0);
    rule.number(at + 8, 1, val.ttl ?? 0, mask.ttl ?? 0);
    rule.number(at + 9, 1, val.proto ?? 0, mask.proto ?? 0);
    rule.number(at + 12, 4, val.src_ip ?? 0, mask.src_ip ?? 0);
    rule.number(at + 16, 4, val.dst_ip ?? 0, mask.dst_ip ?? 0);
  }
  if (ip6) {
    const { val = {}, mask = {} } = ip6;
    const first = ({ traffic_class = 0, flow_label = 0 }: typeof val) => traffic_class * 2 ** 20 + flow_label;
    rule.number(at, 4, first(val), first(mask));
    rule.number(at + 6, 1, val.next_hdr ?? 0, mask.next_hdr ?? 0);
    rule.number(at + 7, 1, val.hop_limit ?? 0, mask.hop_limit ?? 0);
    rule.bytes(at + 8, address(val.src_ip, 16), address(mask.src_ip, 16));
    rule.bytes(at + 24, address(val.dst_ip, 16), address(mask.dst_ip, 16));
  }
  if (ports) {
    const { type, val = {}, mask = {} } = ports;
    rule.number(at + (version === 4 ? 9 : 6), 1, PROTOCOLS.get(type)!);
    if (version === 4) {
      rule.number(at, 1, 0x45);
      rule.number(at + 6, 2, 0, 0x1fff);
    }
    const portsAt = at + (version === 4 ? 20 : 40);
    rule.number(portsAt, 2, val.src_port ?? 0, mask.src_port ?? 0);
    rule.number(portsAt + 2, 2, val.dst_port ?? 0, mask.dst_port ?? 0);
  }
  return rule;
}

/** An address of so many bytes; zeros where none is given. */
function address(bytes: Uint8Array | readonly number[] | undefined, length: number): Uint8Array {
  const all = Uint8Array.from(bytes ?? []);
  if (bytes !== undefined && all.length !== length)
    throw invalid('specs', `an address of ${all.length} bytes`, `${length} bytes`);
  return bytes === undefined ? new Uint8Array(length) : all;
}
