import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fromHex, toHex } from '../bytes.ts';
import { type CmInput, cmNameAt, decodeCm, encodeCm } from './cm.ts';
import { CM_LAYOUTS, CmAttribute, type CmName } from './cm-layouts.ts';
import { CmRejReason } from './cm-values.ts';
import type { Field } from './field.ts';
import { decodeIpCmHeader, encodeIpCmHeader, ipCmServiceId, PortSpace, parseIpCmServiceId } from './ip-cm.ts';
import { MAD_BYTES, MAD_HEADER_BYTES } from './mad.ts';

/** A MAD of which only the first bytes are not 0. */
function mad(hex: string): Uint8Array {
  const bytes = new Uint8Array(MAD_BYTES);
  bytes.set(fromHex(hex));
  return bytes;
}

function decoded(bytes: Uint8Array) {
  const result = decodeCm(bytes);
  if (!result.ok) throw new Error(result.reason);
  return result.message;
}

// Sent by Linux 6.1 (rdma_rxe, rping between 10.77.0.2 and 10.77.0.3): test/fixtures/captures/cm_rping*.pcap.
const RXE = {
  REQ: mad(
    '0107020300000000000000024b6ae19f0010000000000000' +
      '9fe16a4b000000000000000001061c06505400fffe77000200000000000000000000510100000001000000a0831a2ca7' +
      'ffff57f0ffffffff00000000000000000000ffff0a4d000200000000000000000000ffff0a4d0003a25fe00000400098' +
      `${'00'.repeat(44)}0040d708${'00'.repeat(12)}0a4d0002${'00'.repeat(12)}0a4d0003`,
  ),
  REP: mad(
    '0107020300000000000000024b6ae19f0013000000000000' +
      '982def249fe16a4b00000000000051000000000030762a00010178e0505400fffe770003',
  ),
  RTU: mad('0107020300000000000000024b6ae19f00140000000000009fe16a4b982def24'),
  DREQ: mad('0107020300000000000000024b6ae19f00150000000000009fe16a4b982def24000051'),
  REJ: mad('0107020300000000000000024b6ae19300120000000000000000000093e16a4b00000008'),
};

const gid = (last: number) => fromHex(`00000000000000000000ffff0a4d00${last.toString(16).padStart(2, '0')}`);

describe('messages of a real rxe', () => {
  test('REQ', () => {
    const message = decoded(RXE.REQ);
    expect(message).toMatchObject({
      name: 'REQ',
      transactionId: 0x2_4b6a_e19fn,
      localCommId: 0x9fe1_6a4b,
      serviceId: 0x0106_1c06n,
      localCaGuid: 0x5054_00ff_fe77_0002n,
      localQpn: 0x51,
      responderResources: 1,
      initiatorDepth: 1,
      remoteCmResponseTimeout: 20,
      transportService: 0,
      startingPsn: 0x83_1a2c,
      localCmResponseTimeout: 20,
      retryCount: 7,
      pkey: 0xffff,
      pathMtu: 5,
      rnrRetryCount: 7,
      maxCmRetries: 15,
      srq: false,
      primaryLocalLid: 0xffff,
      primaryLocalGid: gid(2),
      primaryRemoteGid: gid(3),
      // 55048 · 31 + 7174, 20 bits (`cma_resolve_iboe_route`).
      primaryFlowLabel: (55_048 * 31 + 7174) & 0xf_ffff,
      primaryHopLimit: 64,
      primaryAckTimeout: 19,
      alternateLocalLid: 0,
    });
    if (message.name !== 'REQ') throw new Error(message.name);
    expect(decodeIpCmHeader(message.privateData)).toMatchObject({
      version: 0,
      ipVersion: 4,
      sourcePort: 55_048,
    });
  });

  test('REP, RTU, DREQ, REJ', () => {
    const ids = { localCommId: 0x982d_ef24, remoteCommId: 0x9fe1_6a4b };
    const rep = {
      localQpn: 0x51,
      startingPsn: 0x30_762a,
      targetAckDelay: 15,
      rnrRetryCount: 7,
      initiatorDepth: 1,
    };
    expect(decoded(RXE.REP)).toMatchObject({
      name: 'REP',
      ...ids,
      ...rep,
      localCaGuid: 0x5054_00ff_fe77_0003n,
    });
    const back = { localCommId: ids.remoteCommId, remoteCommId: ids.localCommId };
    expect(decoded(RXE.RTU)).toMatchObject({ name: 'RTU', ...back });
    expect(decoded(RXE.DREQ)).toMatchObject({ name: 'DREQ', ...back, remoteQpn: 0x51 });
    expect(decoded(RXE.REJ)).toMatchObject({
      name: 'REJ',
      remoteCommId: 0x93e1_6a4b,
      messageRejected: 0,
      reason: CmRejReason.INVALID_SERVICE_ID,
    });
  });

  test.each(Object.entries(RXE))('%s is encoded to the same bytes', (_name, bytes) => {
    expect(toHex(encodeCm(decoded(bytes)))).toBe(toHex(bytes));
  });
});

// Where the specification has each field: first byte of the body, and the bytes that it fills, as a mask. Written from
// the specification's tables (IBTA vol 1 §12.6 to §12.11), not from the layouts.
const ID = { localCommId: [0, 'ffffffff'], remoteCommId: [4, 'ffffffff'] } as const;
const PLACES: Record<CmName, Record<string, readonly [at: number, mask: string]>> = {
  REQ: {
    localCommId: [0, 'ffffffff'],
    vendorId: [5, 'ffffff'],
    serviceId: [8, 'ff'.repeat(8)],
    localCaGuid: [16, 'ff'.repeat(8)],
    localQkey: [28, 'ffffffff'],
    localQpn: [32, 'ffffff'],
    responderResources: [35, 'ff'],
    localEecn: [36, 'ffffff'],
    initiatorDepth: [39, 'ff'],
    remoteEecn: [40, 'ffffff'],
    remoteCmResponseTimeout: [43, 'f8'],
    transportService: [43, '06'],
    endToEndFlowControl: [43, '01'],
    startingPsn: [44, 'ffffff'],
    localCmResponseTimeout: [47, 'f8'],
    retryCount: [47, '07'],
    pkey: [48, 'ffff'],
    pathMtu: [50, 'f0'],
    rdcExists: [50, '08'],
    rnrRetryCount: [50, '07'],
    maxCmRetries: [51, 'f0'],
    srq: [51, '08'],
    extendedTransport: [51, '07'],
    primaryLocalLid: [52, 'ffff'],
    primaryRemoteLid: [54, 'ffff'],
    primaryLocalGid: [56, 'ff'.repeat(16)],
    primaryRemoteGid: [72, 'ff'.repeat(16)],
    primaryFlowLabel: [88, 'fffff0'],
    primaryPacketRate: [91, '3f'],
    primaryTrafficClass: [92, 'ff'],
    primaryHopLimit: [93, 'ff'],
    primaryServiceLevel: [94, 'f0'],
    primarySubnetLocal: [94, '08'],
    primaryAckTimeout: [95, 'f8'],
    alternateLocalLid: [96, 'ffff'],
    alternateRemoteLid: [98, 'ffff'],
    alternateLocalGid: [100, 'ff'.repeat(16)],
    alternateRemoteGid: [116, 'ff'.repeat(16)],
    alternateFlowLabel: [132, 'fffff0'],
    alternatePacketRate: [135, '3f'],
    alternateTrafficClass: [136, 'ff'],
    alternateHopLimit: [137, 'ff'],
    alternateServiceLevel: [138, 'f0'],
    alternateSubnetLocal: [138, '08'],
    alternateAckTimeout: [139, 'f8'],
    sapSupported: [139, '04'],
    privateData: [140, 'ff'.repeat(92)],
  },
  MRA: {
    ...ID,
    messageMraed: [8, 'c0'],
    serviceTimeout: [9, 'f8'],
    privateData: [10, 'ff'.repeat(222)],
  },
  REJ: {
    ...ID,
    messageRejected: [8, 'c0'],
    additionalInfoLength: [9, 'fe'],
    reason: [10, 'ffff'],
    additionalInfo: [12, 'ff'.repeat(72)],
    privateData: [84, 'ff'.repeat(148)],
  },
  REP: {
    ...ID,
    localQkey: [8, 'ffffffff'],
    localQpn: [12, 'ffffff'],
    vendorIdHigh: [15, 'ff'],
    localEecn: [16, 'ffffff'],
    vendorIdMiddle: [19, 'ff'],
    startingPsn: [20, 'ffffff'],
    vendorIdLow: [23, 'ff'],
    responderResources: [24, 'ff'],
    initiatorDepth: [25, 'ff'],
    targetAckDelay: [26, 'f8'],
    failoverAccepted: [26, '06'],
    endToEndFlowControl: [26, '01'],
    rnrRetryCount: [27, 'e0'],
    srq: [27, '10'],
    localCaGuid: [28, 'ff'.repeat(8)],
    privateData: [36, 'ff'.repeat(196)],
  },
  RTU: { ...ID, privateData: [8, 'ff'.repeat(224)] },
  DREQ: { ...ID, remoteQpn: [8, 'ffffff'], privateData: [12, 'ff'.repeat(220)] },
  DREP: { ...ID, privateData: [8, 'ff'.repeat(224)] },
  SIDR_REQ: {
    requestId: [0, 'ffffffff'],
    pkey: [4, 'ffff'],
    serviceId: [8, 'ff'.repeat(8)],
    privateData: [16, 'ff'.repeat(216)],
  },
  SIDR_REP: {
    requestId: [0, 'ffffffff'],
    status: [4, 'ff'],
    additionalInfoLength: [5, 'ff'],
    vendorIdHigh: [6, 'ffff'],
    qpn: [8, 'ffffff'],
    vendorIdLow: [11, 'ff'],
    serviceId: [12, 'ff'.repeat(8)],
    qkey: [20, 'ffffffff'],
    additionalInfo: [24, 'ff'.repeat(72)],
    privateData: [96, 'ff'.repeat(136)],
  },
  LAP: {
    ...ID,
    remoteQpn: [12, 'ffffff'],
    remoteCmResponseTimeout: [15, 'f8'],
    alternateLocalLid: [20, 'ffff'],
    alternateRemoteLid: [22, 'ffff'],
    alternateLocalGid: [24, 'ff'.repeat(16)],
    alternateRemoteGid: [40, 'ff'.repeat(16)],
    alternateFlowLabel: [56, 'fffff0'],
    alternateTrafficClass: [59, 'ff'],
    alternateHopLimit: [60, 'ff'],
    alternatePacketRate: [61, '3f'],
    alternateServiceLevel: [62, 'f0'],
    alternateSubnetLocal: [62, '08'],
    alternateAckTimeout: [63, 'f8'],
    privateData: [64, 'ff'.repeat(168)],
  },
  APR: {
    ...ID,
    additionalInfoLength: [8, 'ff'],
    status: [9, 'ff'],
    additionalInfo: [12, 'ff'.repeat(72)],
    privateData: [84, 'ff'.repeat(148)],
  },
};

const names = Object.keys(CM_LAYOUTS) as CmName[];

/** The largest value of a field. */
function allOnes({ kind, bytes }: Field<unknown>, mask: string): unknown {
  if (kind === 'flag') return true;
  if (kind === 'word' || kind === 'guid') return 2n ** 64n - 1n;
  if (kind === 'number') return 2 ** [...fromHex(mask)].reduce((sum, byte) => sum + bitCount(byte), 0) - 1;
  return new Uint8Array(bytes).fill(0xff);
}

const bitCount = (byte: number): number => byte.toString(2).replaceAll('0', '').length;

describe.each(names)('%s', (name) => {
  test('has each field where the specification has it', () => {
    expect(Object.keys(CM_LAYOUTS[name]).sort()).toEqual(Object.keys(PLACES[name]).sort());
    for (const [key, field] of Object.entries(CM_LAYOUTS[name]) as [string, Field<unknown>][]) {
      const [at, mask] = PLACES[name][key];
      const expected = new Uint8Array(MAD_BYTES - MAD_HEADER_BYTES);
      expected.set(fromHex(mask), at);
      const bytes = encodeCm({ name, [key]: allOnes(field, mask) } as CmInput);
      expect(toHex(bytes.subarray(MAD_HEADER_BYTES)), key).toBe(toHex(expected));
      const header = `01070203${'00'.repeat(12)}00${CmAttribute[name].toString(16)}${'00'.repeat(6)}`;
      expect(toHex(bytes.subarray(0, MAD_HEADER_BYTES))).toBe(header);
    }
  });

  test('any bytes decode to values that encode to the same fields', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 232, maxLength: 232 }), (body) => {
        const bytes = encodeCm({ name } as CmInput);
        bytes.set(body, MAD_HEADER_BYTES);
        const message = decoded(bytes);
        expect(decoded(encodeCm(message))).toEqual(message);
      }),
      { numRuns: 30 },
    );
  });
});

test('a field leaves its neighbours in the byte as they are', () => {
  const first = encodeCm({ name: 'REQ', pathMtu: 5, rdcExists: true, rnrRetryCount: 7 });
  expect(first[MAD_HEADER_BYTES + 50]).toBe(0x5f);
  const second = encodeCm({ name: 'REQ', pathMtu: 3, rnrRetryCount: 2 });
  expect(second[MAD_HEADER_BYTES + 50]).toBe(0x32);
});

describe('refuses', () => {
  test('other datagrams, with the reason', () => {
    expect(decodeCm(RXE.RTU.subarray(1))).toEqual({ ok: false, reason: 'truncated' });
    const changed = (at: number, value: number) => {
      const bytes = RXE.RTU.slice();
      bytes[at] = value;
      return decodeCm(bytes);
    };
    expect(changed(0, 2)).toEqual({ ok: false, reason: 'unsupported-version' });
    expect(changed(1, 3)).toEqual({ ok: false, reason: 'not-cm' });
    expect(changed(2, 1)).toEqual({ ok: false, reason: 'unsupported-version' });
    expect(changed(3, 1)).toEqual({ ok: false, reason: 'unknown-attribute' });
    expect(changed(17, 0x1b)).toEqual({ ok: false, reason: 'unknown-attribute' });
    expect(cmNameAt(RXE.RTU.subarray(0, 23), 0)).toBeUndefined();
  });

  test('values that do not fit, by the name of the field', () => {
    expect(() => encodeCm({ name: 'REQ', retryCount: 8 })).toThrow('REQ retryCount 8: expected');
    expect(() => encodeCm({ name: 'DREQ', remoteQpn: 2 ** 24 })).toThrow('DREQ remoteQpn 16777216');
    expect(() => encodeCm({ name: 'REP', localCaGuid: -1n })).toThrow('REP localCaGuid -1');
    const privateData = new Uint8Array(93);
    expect(() => encodeCm({ name: 'REQ', privateData })).toThrow('REQ privateData of 93 bytes: expected 92');
    expect(() => encodeCm({ name: 'RTU', remoteQpn: 1 } as CmInput)).toThrow('RTU has no field remoteQpn');
  });
});

describe('IP addresses in private data', () => {
  test('encode to 36 bytes and back', () => {
    const value = {
      version: 0,
      ipVersion: 4,
      sourcePort: 55_048,
      source: fromHex(`${'00'.repeat(12)}0a4d0002`),
      destination: fromHex(`${'00'.repeat(12)}0a4d0003`),
    };
    const bytes = encodeIpCmHeader(value);
    expect(toHex(bytes)).toBe(`0040d708${'00'.repeat(12)}0a4d0002${'00'.repeat(12)}0a4d0003`);
    expect(decodeIpCmHeader(bytes)).toEqual(value);
  });

  test('service IDs of rping, udaddy and a service that is not of IP', () => {
    expect(ipCmServiceId(PortSpace.TCP, 7174)).toBe(0x0106_1c06n);
    expect(ipCmServiceId(PortSpace.UDP, 7174)).toBe(0x0111_1c06n);
    expect(parseIpCmServiceId(0x0106_4853n)).toEqual({ portSpace: 0x0106, port: 18_515 });
    expect(parseIpCmServiceId(0x1_0106_4853n)).toBeUndefined();
  });
});
