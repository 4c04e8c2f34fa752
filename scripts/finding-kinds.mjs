/** Writes the kinds of findings into docs/capture-causes.md and the schema of the analysis: both follow from the rules in findings/. */
import { readFileSync, writeFileSync } from 'node:fs';
import { FINDING_KINDS } from '@node-roce/capture';

const root = new URL('../', import.meta.url);
const docs = new URL('docs/capture-causes.md', root);
const schema = new URL('packages/capture/analysis.schema.json', root);

const text = readFileSync(docs, 'utf8');
const rows = Object.entries(FINDING_KINDS).map(([kind, when]) => `| \`${kind}\` | ${when} |\n`);
writeFileSync(
  docs,
  text.replace(/(\| kind \| made when \|\n\|---\|---\|\n)(?:\|.*\n)*/, (_, head) => head + rows.join('')),
);

const json = JSON.parse(readFileSync(schema, 'utf8'));
json.$defs.findingKind.enum = Object.keys(FINDING_KINDS);
writeFileSync(schema, `${JSON.stringify(json, null, 2)}\n`);
