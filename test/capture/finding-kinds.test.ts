/** docs/capture-causes.md lists the kinds of findings that the analysis makes. */
import { readFileSync } from 'node:fs';
import { FINDING_KINDS } from '@node-roce/capture';
import { expect, test } from 'vitest';

test('docs/capture-causes.md has a row for each kind of finding', () => {
  const docs = readFileSync(new URL('../../docs/capture-causes.md', import.meta.url), 'utf8');
  const section = docs.slice(docs.indexOf('| kind | made when |'));
  const rows = [...section.slice(0, section.indexOf('\n\n')).matchAll(/^\| `([a-z-]+)` \| (.*) \|$/gm)];
  expect(rows.map(([, kind, when]) => [kind, when])).toEqual(Object.entries(FINDING_KINDS));
});
