import { describe, expect, test } from 'vitest';
import { encodeCm } from './cm.ts';
import type { CmName } from './cm-layouts.ts';
import { CM_TITLES, cmFieldTexts, describeCm, rejectReason, serviceName, sidrStatus } from './describe.ts';
import { MAD_BYTES } from './mad.ts';

const REQ = encodeCm({
  name: 'REQ',
  localCommId: 0x1a,
  serviceId: 0x0106_1c06n,
  localQpn: 0x55,
  startingPsn: 7,
  retryCount: 7,
  rnrRetryCount: 6,
  primaryAckTimeout: 19,
  pathMtu: 3,
  responderResources: 4,
  initiatorDepth: 2,
});

test('a REQ in a line', () => {
  expect(describeCm(REQ, 0, MAD_BYTES)).toBe(
    'CM ConnectRequest ID=0x1a TCP port 7174 QP=0x55 PSN=7 timeout=19 retries=7 rnr=6 mtu=1024 resources=4 depth=2',
  );
});

test('a REJ with its reason', () => {
  const rej = encodeCm({ name: 'REJ', localCommId: 0, remoteCommId: 0x1a, reason: 8 });
  expect(describeCm(rej, 0, MAD_BYTES)).toBe('CM ConnectReject ID=0x0 to 0x1a invalid service ID (8)');
  expect(cmFieldTexts(rej, 0, MAD_BYTES).find(({ name }) => name === 'reason')).toMatchObject({
    text: 'invalid service ID (8)',
    offset: 34,
    bytes: Uint8Array.of(0, 8),
  });
});

test('names of reasons, statuses and services', () => {
  expect(rejectReason(28)).toBe('consumer defined (28)');
  expect(rejectReason(99)).toBe('reserved (99)');
  expect(sidrStatus(3)).toBe('no QP (3)');
  expect(serviceName(0x0111_0001n)).toBe('UDP port 1');
  expect(serviceName(0xdead_beef_0000_0001n)).toBe('0xdeadbeef00000001');
});

describe.each(Object.keys(CM_TITLES) as CmName[])('%s', (name) => {
  const message = encodeCm({ name });

  test('has a title, and a field for each of its values', () => {
    expect(describeCm(message, 0, MAD_BYTES)).toContain(`CM ${CM_TITLES[name]}`);
    expect(cmFieldTexts(message, 0, MAD_BYTES).length).toBeGreaterThan(2);
  });

  test('cut anywhere: the name from the header on, and only fields that are there', () => {
    for (let end = 0; end <= MAD_BYTES; end++) {
      const text = describeCm(message, 0, end);
      if (end < 24) expect(text).toBeUndefined();
      else expect(text).toContain(CM_TITLES[name]);
      for (const { offset, bytes } of cmFieldTexts(message, 0, end))
        expect(offset + bytes.length).toBeLessThanOrEqual(end);
    }
  });
});
