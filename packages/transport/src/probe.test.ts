/** Answers to a tail loss probe: if one acknowledges the probe's packet alone, all that followed it is lost. */
import { expect, test } from 'vitest';
import { Probe } from './requester/probe.ts';

test('is wanted until its turn comes', () => {
  const probe = new Probe();
  expect(probe.wanted).toBe(false);
  probe.want();
  expect(probe.wanted).toBe(true);
  probe.take();
  expect(probe.wanted).toBe(false);
});

test.each([
  ['its packet alone', 1, true],
  ['more than its packet', 2, false],
  ['nothing new', 0, false],
])('%s is acknowledged', (_, packets, lost) => {
  for (const psn of [0, 0x10, 0xff_ffff]) {
    const probe = new Probe();
    probe.sent(psn);
    expect(probe.acknowledged((psn + packets) & 0xff_ffff)).toBe(lost);
    // Only the first answer says so.
    for (const again of [psn + 1, 2]) expect(probe.acknowledged(again & 0xff_ffff)).toBe(false);
  }
});

test('before it was sent nothing acknowledges it', () => {
  for (let psn = 0; psn < 4; psn++) expect(new Probe().acknowledged(psn)).toBe(false);
});

test('is forgotten when everything is sent again', () => {
  for (const psn of [0x11, 2]) {
    const probe = new Probe();
    probe.want();
    probe.sent(0x10);
    probe.forget();
    expect(probe.wanted).toBe(false);
    expect(probe.acknowledged(psn)).toBe(false);
  }
});
