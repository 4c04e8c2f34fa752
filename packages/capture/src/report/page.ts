/** The frame of a page that is one file: its policy, colours, style and script. */
import { ladderStyle } from '../ladder/style.ts';
import { escapeMarkup } from './escape.ts';
import { themeStyle } from './themes.ts';

export interface PageParts {
  title: string;
  generator: string;
  style: string;
  /** With its SHA-256 in base 64: the one script that may run. Undefined: none may. */
  script?: string;
  hash?: string;
  /** More directives of the policy (CSP level 3). */
  policy?: string;
  /** Markup before the script. */
  body: string;
}

/** A self-contained HTML page. It loads nothing and may load nothing. */
export function htmlPage({ title, generator, style, script, hash, policy, body }: PageParts): string {
  const directives = [
    "default-src 'none'",
    ...(hash === undefined ? [] : [`script-src 'sha256-${hash}'`]),
    "style-src 'unsafe-inline'",
    'img-src data:',
    ...(policy === undefined ? [] : [policy]),
    "base-uri 'none'",
    "form-action 'none'",
  ];
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${directives.join('; ')}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="${escapeMarkup(generator)}">
<title>${escapeMarkup(title)}</title>
<link rel="icon" href="data:,">
<style>
${themeStyle()}
${style}${ladderStyle((name) => `var(--${name})`)}
</style>
</head>
<body>
${body}
${script === undefined ? '' : `<script>${script}</script>\n`}</body>
</html>
`;
}
