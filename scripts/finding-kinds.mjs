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

// The text and not the object: the rest of the file keeps its form.
const json = readFileSync(schema, 'utf8');
const names = Object.keys(FINDING_KINDS).map((kind) => `\n        "${kind}"`);
writeFileSync(
  schema,
  json.replace(
    /("findingKind": \{\s*"enum": \[)[^\]]*?(\s*\])/,
    (_, head, tail) => head + names.join(',') + tail,
  ),
);
