// A program and its arguments, with what its devices retransmit, and why, as JSON in the file that ROCE_WATCHED names.
import { subscribe } from 'node:diagnostics_channel';
import { writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const retransmitted = [];
subscribe('node-roce:retransmission', ({ psn, cause }) => retransmitted.push({ psn, cause }));
process.on('exit', () => writeFileSync(process.env.ROCE_WATCHED, JSON.stringify(retransmitted)));
process.argv.splice(1, 1);
await import(pathToFileURL(process.argv[1]));
