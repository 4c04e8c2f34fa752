/** The options of commands that open a device, as `openDevice` takes them. */
import { expect, test } from 'vitest';
import { openOptions, recoveryOptions } from './link-choice.ts';

test('a link is opened as it was asked for; one that names xdp wants any of its modes', () => {
  expect(openOptions('auto')).toEqual({ link: 'auto' });
  expect(openOptions('xdp')).toEqual({ link: 'xdp', xdpMode: 'any' });
});

test('--no-probes is an option of the device, which is left alone without it', () => {
  expect(recoveryOptions(true)).toEqual({});
  expect(recoveryOptions(false)).toEqual({ recovery: { probes: false } });
});
