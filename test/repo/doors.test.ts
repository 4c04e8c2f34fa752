/** The files that a request with nothing lost enters are few, and none is of loss recovery (docs/architecture.md): a file more is a reason to look. */
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from 'vitest';

type Step = 'post' | 'sent' | 'taken' | 'acknowledged' | 'completed';

/** Files, of all packages, that are entered at most: by the post, the turn that sends, the peer's two turns, and the turn that takes the ACK. */
const MOST: Record<Step, number> = { post: 9, sent: 30, taken: 27, acknowledged: 20, completed: 29 };

/** The fewest files of each step. */
function entered(what: string): [step: Step, files: string[]][] {
  const script = join(import.meta.dirname, 'doors.mjs');
  const text = execFileSync(process.execPath, [script, what], { encoding: 'utf8' });
  const requests = JSON.parse(text) as Record<Step, string[]>[];
  return (Object.keys(MOST) as Step[]).map((step) => {
    const [fewest] = requests.map((request) => request[step]).sort((a, b) => a.length - b.length);
    return [step, fewest];
  });
}

const ofRecovery = (files: readonly string[]) => files.filter((file) => file.includes('/recovery/'));

test('a SEND and its ACK', () => {
  const steps = entered('send');
  for (const [step, files] of steps) {
    expect(files.length, `${step}: ${files.join(' ')}`).toBeLessThanOrEqual(MOST[step]);
    expect(ofRecovery(files), step).toEqual([]);
  }
  // The count is one of files that are there.
  const [, [, sent], [, taken]] = steps;
  expect(sent).toContain('transport/requester/transmitter');
  expect(taken).toContain('transport/responder/rc');
});

test('a WRITE enters no file of loss recovery', () => {
  for (const [step, files] of entered('write')) {
    expect(files.length, step).toBeGreaterThan(5);
    expect(ofRecovery(files), step).toEqual([]);
  }
});
