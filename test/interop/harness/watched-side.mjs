// bench/sides/node-roce.mjs, and what its device sends again, and why, as JSON into the file that argv names.

import { subscribe } from 'node:diagnostics_channel';
import { writeFileSync } from 'node:fs';

// bench/sides/build.mjs would take the argument for the checkout that it is to measure.
const [file] = process.argv.splice(2, 1);
const sentAgain = [];
subscribe('node-roce:retransmission', ({ psn, cause }) => sentAgain.push({ psn, cause }));
// The side answers 'close' when its device is closed: everything is reported by then.
const send = process.send.bind(process);
process.send = (message, ...rest) => {
  writeFileSync(file, JSON.stringify(sentAgain));
  return send(message, ...rest);
};
await import('../../../bench/sides/node-roce.mjs');
