/** The published JSON schema of `roce flows --json`, compared with the analysis of each fixture. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { analyzeCapture, FINDING_KINDS } from '@node-roce/capture/node';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';

const root = join(import.meta.dirname, '../..');
const schema = JSON.parse(readFileSync(join(root, 'packages/capture/analysis.schema.json'), 'utf8'));
const validate = new Ajv2020({ allErrors: true, strict: true, strictRequired: false }).compile(schema);

const captures = ['captures', 'captures-review'].flatMap((name) => {
  const folder = join(root, 'test/fixtures', name);
  return readdirSync(folder)
    .filter((file) => file.endsWith('.pcap'))
    .map((file) => join(folder, file));
});

test('lists each kind of finding', () => {
  expect(schema.$defs.findingKind.enum.toSorted()).toEqual(Object.keys(FINDING_KINDS).toSorted());
});

test('describes the analysis of every fixture', async () => {
  expect(captures.length).toBeGreaterThan(60);
  for (const path of captures) {
    const json = JSON.parse(JSON.stringify(await analyzeCapture(path)));
    validate(json);
    expect(validate.errors, path).toBe(null);
  }
});

test('refuses an analysis that lacks a member, or has another cause', async () => {
  const json = JSON.parse(JSON.stringify(await analyzeCapture(captures[0])));
  expect(validate({ ...json, findings: undefined })).toBe(false);
  json.connections[0].recoveries = [{ ...json.connections[0].recoveries[0], cause: 'bad luck' }];
  expect(validate(json)).toBe(false);
});
