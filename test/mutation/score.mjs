// Adds up reports of StrykerJS (by default the last one): the score, by file, and the last line for the table of results.
// Exit code 1 if the score is below the one that is asked for.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const LEAST = 85;
const reports = process.argv.slice(2);
if (reports.length === 0) reports.push(fileURLToPath(new URL('.cache/report.json', import.meta.url)));

const files = new Map();
for (const report of reports) {
  for (const [path, { mutants }] of Object.entries(JSON.parse(readFileSync(report, 'utf8')).files)) {
    const name = path.replace('packages/transport/src/', '');
    const count = files.get(name) ?? { killed: 0, all: 0, lines: [] };
    for (const { status, location, mutatorName, replacement } of mutants) {
      if (status === 'Ignored' || status === 'CompileError') continue;
      count.all++;
      if (status === 'Killed' || status === 'Timeout' || status === 'RuntimeError') count.killed++;
      else
        count.lines.push(`${location.start.line}:${location.start.column} ${mutatorName} → ${replacement}`);
    }
    files.set(name, count);
  }
}
let killed = 0;
let all = 0;
for (const [name, count] of [...files].sort()) {
  if (count.all === 0) continue;
  killed += count.killed;
  all += count.all;
  console.log(
    `${((100 * count.killed) / count.all).toFixed(1).padStart(5)} %  ${count.killed} of ${count.all}  ${name}`,
  );
  if (process.env.SURVIVORS) for (const line of count.lines) console.log(`         ${line}`);
}
const score = (100 * killed) / all;
console.log(`result: ${score.toFixed(1)} % of ${all} mutants`);
process.exit(score >= LEAST ? 0 : 1);
