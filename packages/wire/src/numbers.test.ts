/** Ports, path MTUs, timers, syndromes and credits: the small tables. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { AethKind, aethKind, creditCodeFor, creditsOf, describeSyndrome, NakCode } from './headers/aeth.ts';
import { mtuBytesToEnum, mtuEnumToBytes, pathMtuForInterface } from './mtu.ts';
import {
  flowLabelForCm,
  flowLabelFromQpns,
  sourcePortForConnection,
  sourcePortForUd,
  sourcePortFromFlowLabel,
} from './port.ts';
import {
  ackTimeoutCodeFor,
  ackTimeoutMicroseconds,
  rnrTimerCodeFor,
  rnrTimerMicroseconds,
} from './timers.ts';

describe('UDP source port', () => {
  test('of two QPNs uses all 48 bits of their product', () => {
    const qpn = fc.nat(0xff_ffff);
    fc.assert(
      fc.property(qpn, qpn, (local, remote) => {
        let v = BigInt(local) * BigInt(remote);
        v ^= v >> 20n;
        v ^= v >> 40n;
        expect(flowLabelFromQpns(local, remote)).toBe(Number(v & 0xf_ffffn));
        expect(flowLabelFromQpns(remote, local)).toBe(flowLabelFromQpns(local, remote));
      }),
    );
  });

  test('is what rxe sent from: QPNs 0x5f and 0x60 (op_all.pcap), QP1', () => {
    expect(sourcePortForConnection(0, 0x60, 0x5f)).toBe(58_272);
    expect(sourcePortForUd(1)).toBe(55_410);
  });

  test('folds a flow label, and prefers one to the QPNs', () => {
    expect(sourcePortFromFlowLabel(0)).toBe(0xc000);
    expect(sourcePortFromFlowLabel(0xf_ffff)).toBe(0xc000 | (0x3fff ^ 0x3f));
    expect(sourcePortForConnection(0x1_2345, 0x60, 0x5f)).toBe(0xc000 | (0x2345 ^ 4));
    expect(flowLabelForCm(40_000, 7174)).toBe((40_000 * 31 + 7174) & 0xf_ffff);
  });
});

test('path MTU of an interface leaves room for 80 bytes of headers', () => {
  const cases = [
    [9000, 4096],
    [4176, 4096],
    [4175, 2048],
    [1500, 1024],
    [1103, 512],
    [336, 256],
    [335, 0],
  ];
  for (const [mtu, path] of cases) expect(pathMtuForInterface(mtu)).toBe(path);
});

test('path MTU codes are 1 … 5', () => {
  for (const [code, bytes] of [256, 512, 1024, 2048, 4096].entries()) {
    expect(mtuEnumToBytes(code + 1)).toBe(bytes);
    expect(mtuBytesToEnum(bytes)).toBe(code + 1);
  }
  expect(() => mtuEnumToBytes(0)).toThrow(RangeError);
  expect(() => mtuEnumToBytes(6)).toThrow(RangeError);
  expect(() => mtuBytesToEnum(1500)).toThrow('1500');
});

describe('timers', () => {
  test('the RNR code 0 is the longest, 1 the shortest', () => {
    expect([0, 1, 12, 14, 31].map(rnrTimerMicroseconds)).toEqual([655_360, 10, 640, 1280, 491_520]);
    for (let code = 2; code < 32; code++) {
      expect(rnrTimerMicroseconds(code)).toBeGreaterThan(rnrTimerMicroseconds(code - 1));
    }
    expect([0, 10, 11, 640, 491_520, 491_521, 1e9].map(rnrTimerCodeFor)).toEqual([1, 1, 2, 12, 31, 0, 0]);
  });

  test('the ACK timeout doubles with each code, and 0 is never', () => {
    expect(ackTimeoutMicroseconds(0)).toBe(Number.POSITIVE_INFINITY);
    expect(ackTimeoutMicroseconds(14)).toBeCloseTo(67_108.864, 6);
    expect([1, 67_109, Number.POSITIVE_INFINITY, 1e12].map(ackTimeoutCodeFor)).toEqual([1, 15, 0, 31]);
  });

  test('refuse codes of more than five bits', () => {
    for (const code of [-1, 32, 1.5, Number.NaN]) {
      expect(() => rnrTimerMicroseconds(code)).toThrow(RangeError);
      expect(() => ackTimeoutMicroseconds(code)).toThrow(RangeError);
    }
  });
});

describe('syndromes', () => {
  test('credit codes promise no more than there is', () => {
    expect([0, 4, 5, 6, 30].map(creditsOf)).toEqual([0, 4, 6, 8, 32_768]);
    expect(creditsOf(31)).toBe(Number.POSITIVE_INFINITY);
    fc.assert(
      fc.property(fc.nat(70_000), (posted) => {
        const code = creditCodeFor(posted);
        expect(creditsOf(code)).toBeLessThanOrEqual(posted);
        if (code < 30) expect(creditsOf(code + 1)).toBeGreaterThan(posted);
      }),
    );
  });

  test('are an ACK, an RNR NAK or a NAK', () => {
    expect([0x1f, 0x2c, 0x60, 0x45].map(aethKind)).toEqual([AethKind.ACK, AethKind.RNR_NAK, AethKind.NAK, 2]);
    expect([0x1f, 0x06, 0x2c, NakCode.REMOTE_ACCESS_ERROR, 0x7e, 0x45, 0x80].map(describeSyndrome)).toEqual([
      'ACK, unlimited credits',
      'ACK, 8 credits',
      'RNR NAK, 640 µs',
      'NAK, remote access error',
      'NAK, reserved reason 30',
      'reserved kind 2, value 5',
      'ACK, 0 credits, reserved bit set',
    ]);
  });
});
