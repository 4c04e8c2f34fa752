// `node test/mutation/score.mjs [PATH…]`: the score by file and folder from the results that judge.mjs keeps; SURVIVORS=1 lists what
// lives. Exit code 1 if the score is below the one that is asked for.
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { allResults, count } from './results.mjs';

const LEAST = 85;
const SOURCE = fileURLToPath(new URL('../../packages/transport/src/', import.meta.url));
const asked = process.argv.slice(2);

const percent = ({ dead, judged }) => `${((100 * dead) / judged).toFixed(1).padStart(5)} %`;
const add = (sum, { dead, judged, all }) => {
  sum.dead += dead;
  sum.judged += judged;
  sum.all += all;
};
const sum = () => ({ dead: 0, judged: 0, all: 0 });
const line = (counts, name) =>
  console.log(
    `${percent(counts)}  ${counts.dead} of ${counts.judged}${counts.judged < counts.all ? ` (${counts.all} made)` : ''}  ${name}`,
  );

const total = sum();
const folders = new Map();
for (const { name, stale, mutants } of allResults(SOURCE)) {
  if (asked.length > 0 && !asked.some((path) => name.startsWith(path))) continue;
  const counts = count(mutants);
  if (counts.judged === 0) continue;
  line(counts, `${name}${stale ? ': it has changed since' : ''}`);
  const folder = dirname(name);
  if (!folders.has(folder)) folders.set(folder, sum());
  add(folders.get(folder), counts);
  add(total, counts);
  if (!process.env.SURVIVORS) continue;
  for (const { at, change, state } of mutants) {
    if (state !== undefined && state !== 'dead')
      console.log(`         ${at} ${change}${state === 'alive' ? '' : ` (${state})`}`);
  }
}
for (const [folder, counts] of folders) line(counts, `${folder === '.' ? '' : folder}/`);
const part = total.judged < total.all ? `, ${total.judged} judged` : '';
console.log(`result: ${percent(total).trim()} of ${total.all} mutants${part}`);
process.exit((100 * total.dead) / total.judged >= LEAST ? 0 : 1);
