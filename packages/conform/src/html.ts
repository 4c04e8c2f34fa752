/** Results as one page of HTML without anything from elsewhere: a row for each rule, a column for each device, the packets behind a cell. */
import type { PlainResult, PlainResults } from './report.ts';

const escaped = (text: string): string => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const STYLE = `
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }
table { border-collapse: collapse } td, th { border: 1px solid #ccc; padding: .2em .6em; text-align: left; vertical-align: top }
.pass { background: #dff3df } .deviation, .changed, .mended, .unsteady { background: #f9d5d3 }
.known { background: #fdf0c8 } .broken { background: #e3d5f2 } .untested { background: #eee }
pre { overflow: auto; font-size: 12px; background: #f6f6f6; padding: .5em } summary { cursor: pointer }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } td, th { border-color: #444 }
.pass { background: #1d3a1d } .deviation, .changed, .mended, .unsteady { background: #5a201d } .known { background: #4d4012 }
.broken { background: #3a2350 } .untested { background: #2a2a2a } pre { background: #222 } }
`;

const classOf = (verdict: string): string => (verdict === 'not testable' ? 'untested' : verdict);

function cell(result: PlainResult | undefined): string {
  if (result === undefined) return '<td class="untested">not played</td>';
  const { verdict, why, notes, ladder } = result;
  const lines = [...why, ...notes.map((note) => `note: ${note}`)].map((line) => escaped(line)).join('<br>');
  const head = escaped(verdict);
  const packets = ladder ? `<pre>${escaped(ladder)}</pre>` : '';
  const body = lines || packets ? `<details><summary>${head}</summary>${lines}${packets}</details>` : head;
  return `<td class="${classOf(verdict)}">${body}</td>`;
}

function totals({ results }: PlainResults): string {
  const counts = new Map<string, number>();
  for (const { verdict } of results) counts.set(verdict, (counts.get(verdict) ?? 0) + 1);
  return [...counts].map(([verdict, count]) => `${count} ${verdict}`).join(', ');
}

/** @param devices results of `resultsJson`, a column each; rules in the order in which they are met */
export function resultsHtml(devices: readonly PlainResults[]): string {
  const rules = new Map<string, PlainResult>();
  for (const { results } of devices) {
    for (const result of results) if (!rules.has(result.id)) rules.set(result.id, result);
  }
  const byRule = devices.map(({ results }) => new Map(results.map((result) => [result.id, result])));
  const facts = devices.map((each) => {
    const { name, ...rest } = each.device;
    const text = Object.entries(rest).map(([fact, value]) => `${fact} ${value}`);
    return `<li><b>${escaped(String(name))}</b>: ${escaped(totals(each))}${text.length ? ` (${escaped(text.join(', '))})` : ''}</li>`;
  });
  const head = devices.map(({ device }) => `<th>${escaped(String(device.name))}</th>`).join('');
  const rows = [...rules.values()].map(({ id, title, section, severity }) => {
    const cells = byRule.map((results) => cell(results.get(id))).join('');
    return `<tr><td id="${escaped(id)}">${escaped(id)}</td><td>${escaped(title)}<br><small>${escaped(section)}; ${escaped(severity)}</small></td>${cells}</tr>`;
  });
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>roce conform</title><style>${STYLE}</style></head><body>
<h1>roce conform</h1>
<ul>${facts.join('')}</ul>
<table><thead><tr><th>rule</th><th>requirement</th>${head}</tr></thead><tbody>
${rows.join('\n')}
</tbody></table>
</body></html>
`;
}
