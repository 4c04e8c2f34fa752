/** The report: an analysis as one HTML file that needs nothing but a browser. */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Comparison } from '../compare/comparison.ts';
import type { Analysis } from '../flow/analysis.ts';
import { comparisonBody } from '../report/comparison-page.ts';
import { DEFAULT_LIMITS, type ReportLimits, toReportData } from '../report/data.ts';
import { embedJson, escapeMarkup } from '../report/escape.ts';
import { htmlPage } from '../report/page.ts';

export interface ReportOptions {
  /** The title; by default the file's name. */
  title?: string | undefined;
  /** The program that writes the report, for the foot of the page. */
  generator?: string | undefined;
  /** How much of everything goes in, at most, over all connections. */
  limits?: Partial<ReportLimits> | undefined;
}

/** The page's script or style sheet, which scripts/build-report.mjs has put together. */
function asset(name: string): string {
  // Seen from src/node as from dist/node.
  const url = new URL(`../../dist/report/page/${name}`, import.meta.url);
  if (!existsSync(url)) {
    const error = new Error(`the report's ${fileURLToPath(url)} is not built: run \`npm run build\``);
    throw Object.assign(error, { code: 'ERR_REPORT_NOT_BUILT' });
  }
  return readFileSync(url, 'utf8');
}

/**
 * The page that analyzes captures in a browser, as one HTML file: it reads files that are dropped on it, and loads nothing.
 *
 * @throws Error (`ERR_REPORT_NOT_BUILT`) where the page was not built
 */
export const viewerPage = (): string => asset('viewer.html');

/**
 * The report of an analysis as a self-contained HTML page. It loads nothing and may load nothing: its policy
 * (CSP level 3) lets run the one script whose hash it names, and forbids every connection.
 *
 * @throws Error (`ERR_REPORT_NOT_BUILT`) where the page's script was not built
 */
export function renderReport(analysis: Analysis, options: ReportOptions = {}): string {
  const script = asset('page.js');
  const style = asset('page.css');
  const { generator = 'node-roce' } = options;
  const data = toReportData(analysis, generator, { ...DEFAULT_LIMITS, ...options.limits });
  const title = options.title ?? analysis.summary.file?.replace(/^.*\//, '') ?? 'RoCE capture';
  const hash = createHash('sha256').update(script).digest('base64');
  return htmlPage({
    title: `${title} – RoCE report`,
    generator,
    style,
    script,
    hash,
    body: `<div id="page">
${withoutScript(analysis, title)}</div>
<script type="application/json" id="data">${embedJson(data)}</script>`,
  });
}

/**
 * The comparison of two captures as a self-contained HTML page, in the look of the report. It loads nothing and has no script.
 *
 * @throws Error (`ERR_REPORT_NOT_BUILT`) where the report's style was not built
 */
export function renderComparison(
  comparison: Comparison,
  { title = 'Two captures', generator = 'node-roce' }: Pick<ReportOptions, 'title' | 'generator'> = {},
): string {
  return htmlPage({
    title: `${title} – RoCE comparison`,
    generator,
    style: asset('page.css'),
    body: comparisonBody(comparison),
  });
}

/** The page where scripts don't run, as in a mail program's preview. */
function withoutScript({ verdict, findings }: Analysis, title: string): string {
  const items = findings.map(
    ({ severity, text, hint }) =>
      `<li><b>${severity}</b>: ${escapeMarkup(text)} <i>${escapeMarkup(hint)}</i></li>\n`,
  );
  return `<noscript><main><h1>${escapeMarkup(title)}</h1>
<p><b>${escapeMarkup(verdict.text)}</b> (${verdict.certainty})</p>
<p>The tables, plots and ladders of this report need its script. The findings are:</p>
<ul>
${items.join('')}</ul></main></noscript>
`;
}
