import { expect, test } from 'vitest';
import { CaptureBuilder } from '../../../testing/capture-builder.ts';

test('the share of marked packets, all of them too', () => {
  const capture = new CaptureBuilder();
  for (let i = 0; i < 4; i++) capture.packet(i * 10, 'a', 'RC_SEND_ONLY', { psn: i, payload: 4, ecn: 3 });
  const [marked] = capture.finish().findings.filter(({ kind }) => kind === 'ecn-marked');
  expect(marked.statement).toContain('4 packets (100 %) marked as congested');
});
