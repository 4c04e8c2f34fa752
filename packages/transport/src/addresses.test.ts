/** Peers, address handles and multicast groups (ibv_create_ah(3), ibv_attach_mcast(3)). */
import { sourcePortForUd, sourcePortFromFlowLabel } from '@node-roce/wire';
import { describe, expect, test, vi } from 'vitest';
import { addressOf, gidOf } from '../testing/pair.ts';
import { Addresses, type GroupMember, isMulticastGid } from './addresses.ts';
import { DEVICE_LIMITS } from './control.ts';
import { OpenBatches } from './open-batches.ts';

const member = () => ({}) as GroupMember;
const NO_MORE = expect.objectContaining({ code: 'ERR_ROCE_LIMIT', errno: 'ENOMEM' });
/** `::ffff:239.0.0.N`. */
const groupOf = (n: number) => Uint8Array.from(gidOf(n), (byte, i) => (i === 12 ? 239 : i === 13 ? 0 : byte));

/** A link that gives the lowest free number to each group. */
function make(limits = {}) {
  const joined: string[] = [];
  const peers = {
    add: vi.fn(() => 5),
    remove: vi.fn(),
    join: vi.fn((group: Uint8Array) => {
      const at = joined.indexOf('');
      joined[at < 0 ? joined.length : at] = group.join('.');
      return 1000 + (at < 0 ? joined.length - 1 : at);
    }),
    leave: vi.fn((local: number) => {
      joined[local - 1000] = '';
    }),
  };
  const batches = new OpenBatches();
  return { peers, batches, addresses: new Addresses(peers, { ...DEVICE_LIMITS, ...limits }, batches) };
}

test.each([
  [0, 1],
  [1, 1],
  [2, 2],
  [255, 255],
])('hop limit %d leaves with %d: with 0 and 1, no packet leaves the subnet', (hopLimit, sent) => {
  const { peers, addresses } = make();
  const address = addressOf(2);
  addresses.addPeer({ ...address, grh: { ...address.grh, hopLimit } });
  expect(peers.add).toHaveBeenCalledWith(address.grh.dgid, 0, sent);
});

describe('a peer', () => {
  test('is given back at once while no batch has packets', () => {
    const { peers, addresses } = make();
    addresses.removePeer(5);
    expect(peers.remove).toHaveBeenCalledWith(5);
  });

  test('stays as long as a batch may name it', () => {
    const { peers, batches, addresses } = make();
    const [first, second] = [{}, {}];
    batches.open(first);
    batches.open(second);
    addresses.removePeer(5);
    batches.close(first);
    expect(peers.remove).not.toHaveBeenCalled();
    batches.close(second);
    expect(peers.remove.mock.calls).toEqual([[5]]);
    batches.open(first);
    batches.close(first);
    expect(peers.remove).toHaveBeenCalledTimes(1);
  });
});

describe('an address handle', () => {
  test('has the PD, peer and traffic class that it was made with, until it is destroyed', () => {
    const { peers, addresses } = make();
    const attr = addressOf(2);
    const handle = addresses.createAh(7, { ...attr, grh: { ...attr.grh, trafficClass: 0x68 } });
    expect(addresses.ah(handle)).toMatchObject({ pd: 7, peer: 5, trafficClass: 0x68 });
    expect(addresses.destroyAh(handle)).toBe(7);
    expect(addresses.ah(handle)).toBeUndefined();
    expect(peers.remove.mock.calls).toEqual([[5]]);
  });

  test.each([0, 1, 0xf_ffff])(
    'flow label %i: the source port comes from it, from the QPN without one',
    (flowLabel) => {
      const { addresses } = make();
      const attr = addressOf(2);
      const ah = addresses.ah(addresses.createAh(7, { ...attr, grh: { ...attr.grh, flowLabel } }))!;
      for (const qpn of [2, 0x1234]) {
        expect(ah.sourcePort(qpn)).toBe(
          flowLabel === 0 ? sourcePortForUd(qpn) : sourcePortFromFlowLabel(flowLabel),
        );
      }
    },
  );
});

describe('a group', () => {
  test('is joined with its first member and left with its last', () => {
    const { peers, addresses } = make();
    const [a, b] = [member(), member()];
    addresses.attach(a, groupOf(1), 3);
    addresses.attach(b, groupOf(1), 3);
    addresses.attach(b, groupOf(1), 3);
    expect(peers.join.mock.calls).toEqual([[groupOf(1), 3]]);
    expect(addresses.groups[1000]).toEqual([a, b]);
    expect(addresses.groupGid(1000)).toEqual(groupOf(1));
    expect(addresses.detach(a, groupOf(1))).toBe(true);
    expect(addresses.detach(a, groupOf(1))).toBe(false);
    expect(addresses.groups[1000]).toEqual([b]);
    expect(peers.leave).not.toHaveBeenCalled();
    expect(addresses.detach(b, groupOf(1))).toBe(true);
    expect(peers.leave.mock.calls).toEqual([[1000]]);
    expect(addresses.groups[1000]).toBeUndefined();
    expect(addresses.groupGid(1000)).toBeUndefined();
    expect(addresses.detach(b, groupOf(1))).toBe(false);
  });

  test('is one of several: each has its own members', () => {
    const { addresses } = make();
    const [a, b] = [member(), member()];
    addresses.attach(a, groupOf(1), 0);
    addresses.attach(b, groupOf(2), 0);
    expect(addresses.groups[1000]).toEqual([a]);
    expect(addresses.groups[1001]).toEqual([b]);
    expect(addresses.groupGid(1001)).toEqual(groupOf(2));
    expect(addresses.isAttached(b)).toBe(true);
    expect(addresses.detach(b, groupOf(1))).toBe(false);
    addresses.detach(b, groupOf(2));
    expect(addresses.isAttached(a)).toBe(true);
    expect(addresses.isAttached(b)).toBe(false);
  });

  test('keeps its address though the caller writes over it', () => {
    const { addresses } = make();
    const group = groupOf(1);
    addresses.attach(member(), group, 0);
    group.fill(0);
    expect(addresses.groupGid(1000)).toEqual(groupOf(1));
  });

  test('no more groups, and no more members of one, than the device has', () => {
    const { addresses } = make({ maxMcastGrp: 2, maxMcastQpAttach: 2 });
    const [a, b, c] = [member(), member(), member()];
    addresses.attach(a, groupOf(1), 0);
    addresses.attach(b, groupOf(1), 0);
    expect(() => addresses.attach(c, groupOf(1), 0)).toThrow(NO_MORE);
    // One that is attached is attached again.
    addresses.attach(a, groupOf(1), 0);
    addresses.attach(a, groupOf(2), 0);
    addresses.attach(b, groupOf(2), 0);
    expect(() => addresses.attach(a, groupOf(3), 0)).toThrow(NO_MORE);
    addresses.detach(a, groupOf(1));
    addresses.detach(b, groupOf(1));
    addresses.attach(a, groupOf(3), 0);
  });

  test('needs a link that takes part in groups', () => {
    const addresses = new Addresses({ add: () => 0, remove: () => {} }, DEVICE_LIMITS, new OpenBatches());
    expect(() => addresses.attach(member(), groupOf(1), 0)).toThrow(
      expect.objectContaining({ code: 'ERR_ROCE_NOT_SUPPORTED', errno: 'EOPNOTSUPP' }),
    );
  });
});

/** `::ffff:0:0` with other bytes at some places. */
const withBytes = (bytes: Record<number, number>) => Uint8Array.from(gidOf(1), (byte, i) => bytes[i] ?? byte);

test.each<[string, Uint8Array, boolean]>([
  ['ff02::1', Uint8Array.of(0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), true],
  ['fe80::1', Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), false],
  ['224.0.0.1', withBytes({ 12: 224 }), true],
  ['239.255.255.255', withBytes({ 12: 239, 13: 255, 14: 255, 15: 255 }), true],
  ['223.255.255.255', withBytes({ 12: 223 }), false],
  ['240.0.0.1', withBytes({ 12: 240 }), false],
  ['0:1::ffff:224.0.0.1', withBytes({ 12: 224, 3: 1 }), false],
  ['::1:ffff:224.0.0.1', withBytes({ 12: 224, 9: 1 }), false],
  ['::224.0.0.1', withBytes({ 12: 224, 10: 0, 11: 0 }), false],
  ['::ff00:224.0.0.1', withBytes({ 12: 224, 11: 0 }), false],
  ['::ff:224.0.0.1', withBytes({ 12: 224, 10: 0 }), false],
])('%s is the address of a group or not', (_name, gid, expected) => {
  expect(isMulticastGid(gid)).toBe(expected);
});
