import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { analysis, connection, finding, ladderPacket, message } from '../../testing/analysis.ts';
import type { MessageFailure } from '../flow/facts.ts';
import type { FindingKind } from '../flow/findings/index.ts';
import { embedJson, escapeMarkup } from '../report/escape.ts';
import { darkColors, lightColors } from '../report/themes.ts';
import { renderReport } from './report.ts';

/** Text that breaks out of a place that was not escaped. */
const EVIL = '</script><script>alert(1)</script><!--<img src=x onerror=alert(1)>\u2028"\'&';

const scripts = (html: string) => [...html.matchAll(/<script([^>]*)>([\s\S]*?)<\/script>/g)];

describe('a report', () => {
  const hostile = analysis({
    summary: {
      ...analysis().summary,
      file: `/tmp/${EVIL}`,
      damage: EVIL,
      damaged: { [EVIL]: 1 },
      linkTypes: [EVIL],
    },
    findings: [finding({ text: EVIL, hint: EVIL, kind: EVIL as FindingKind })],
    connections: [
      connection({
        a: { address: EVIL, qpn: 1 },
        pairingReason: EVIL,
        messages: [message({ operation: EVIL, failure: EVIL as MessageFailure })],
        ladder: [ladderPacket({ opcodeName: EVIL })],
      }),
    ],
  });
  const html = renderReport(hostile, { generator: EVIL, title: EVIL });

  test('has two scripts, whatever stands in the capture, and the data come back as they were', () => {
    const [data, code, ...more] = scripts(html);
    expect(more).toEqual([]);
    expect(data![1]).toBe(' type="application/json" id="data"');
    const { summary, findings, connections } = JSON.parse(data![2]);
    expect(summary.damage).toBe(EVIL);
    expect(findings[0].text).toBe(EVIL);
    expect(connections[0].ladder[0].opcodeName).toBe(EVIL);
    expect(code![1]).toBe('');
  });

  test('nothing becomes an element or a comment', () => {
    const outside = html.replaceAll(/<(script|style)[\s\S]*?<\/\1>/g, '');
    expect(outside).not.toMatch(/<img|<!--|onerror=alert\(1\)>/);
  });

  test('its policy lets run the one script, and load nothing', () => {
    const policy = /Content-Security-Policy" content="([^"]*)"/.exec(html)![1];
    const hash = createHash('sha256').update(scripts(html)[1][2]).digest('base64');
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain(`script-src 'sha256-${hash}'`);
    expect(policy).not.toMatch(/https?:|\*|'self'|unsafe-eval/);
    expect(html).not.toMatch(/\b(?:src|href)="(?!data:,|#)/);
  });

  test('an empty capture makes one too', () => {
    const empty = renderReport(analysis());
    expect(JSON.parse(scripts(empty)[0][2]).connections).toEqual([]);
    expect(empty).toContain('<title>trace.pcap – RoCE report</title>');
  });
});

test('embedded JSON is the same value and has no <', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const text = embedJson(value);
      expect(text).not.toContain('<');
      expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
    }),
  );
});

test('escaped text has no markup, and no characters that XML can’t carry', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not be left.
      expect(escapeMarkup(text)).not.toMatch(/[<>"'\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/);
    }),
  );
  expect(escapeMarkup('a\ud800b')).toBe('a\ufffdb');
  expect(escapeMarkup('😀 <')).toBe('😀 &lt;');
});

describe.each([
  ['light', lightColors],
  ['dark', darkColors],
])('contrast, %s (WCAG 2.2 §1.4.3)', (_name, colors) => {
  const texts = Object.keys(colors).filter(
    (name) => !['rule', 'paper', 'back', 'raised', 'chosen'].includes(name),
  ) as (keyof typeof colors)[];
  test.each(texts)('%s on every ground', (name) => {
    for (const ground of ['paper', 'back', 'raised', 'chosen'] as const) {
      expect(contrast(colors[name], colors[ground]), `on ${ground}`).toBeGreaterThanOrEqual(4.5);
    }
  });
});

/** 1 … 21, of two colours #rrggbb. */
function contrast(one: string, other: string): number {
  const [a, b] = [luminance(one), luminance(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

function luminance(color: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}
