/** The shell of a queue pair: its fields agree with its rings. */
import { expect, test, vi } from 'vitest';
import { Pair } from '../../testing/pair.ts';
import { QueueShell } from './shell.ts';

test('the check sees a queue pair that is shown to be resized and is not', () => {
  const { adapter } = new Pair().left;
  const look = vi.spyOn(QueueShell.prototype, 'checkInvariants');
  adapter.checkInvariants();
  const [shell] = look.mock.contexts;
  look.mockRestore();
  (shell as { isResizing: boolean }).isResizing = true;
  expect(() => adapter.checkInvariants()).toThrow('whether the queues are resized is shown wrong');
});
