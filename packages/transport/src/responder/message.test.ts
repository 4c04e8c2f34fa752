/** The message that arrives: its fields agree with each other. */
import { expect, test } from 'vitest';
import { InboundMessage } from './message.ts';

test('the check sees a message that is shown under way and is not, and the other way round', () => {
  const message = new InboundMessage();
  const shown = message as { underWay: boolean };
  expect(message.fault).toBeUndefined();
  shown.underWay = true;
  expect(message.fault).toMatch(/under way is shown wrong/);
  message.send(false);
  expect([message.underWay, message.fault]).toEqual([true, undefined]);
  shown.underWay = false;
  expect(message.fault).toMatch(/under way is shown wrong/);
  message.send(true);
  expect([message.underWay, message.fault]).toEqual([false, undefined]);
});
