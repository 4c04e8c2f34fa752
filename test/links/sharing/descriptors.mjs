// Opens a shared address with 0, 1, 2 … file descriptors left until that succeeds, and prints what came before. Argument: the address; `second`
// to open it in addition to a device that has it. Run with a small limit (ulimit -n).
import { closeSync, openSync, readdirSync } from 'node:fs';
import { openDevice } from '@node-roce/verbs-api';

const [address, port, role] = process.argv.slice(2);
const options = { address, port: Number(port), shared: true, link: 'udp' };
// Also loads what is loaded at the first use.
const first = await openDevice(options);
if (role !== 'second') await first.close();
const held = () => readdirSync('/proc/self/fd').length;
const before = held();

const codes = {};
const leaks = [];
let device;
for (let left = 0; device === undefined && left < 200; left++) {
  const fillers = [];
  try {
    for (;;) fillers.push(openSync('/dev/null'));
  } catch {}
  for (const descriptor of fillers.splice(0, left)) closeSync(descriptor);
  try {
    device = await openDevice(options);
  } catch ({ code }) {
    codes[code] = (codes[code] ?? 0) + 1;
  }
  for (const descriptor of fillers) closeSync(descriptor);
  if (!device && held() !== before) leaks.push([left, held() - before]);
}
await device?.close();
if (role === 'second') await first.close();
const alone = await openDevice({ ...options, shared: false });
await alone.close();
console.log(JSON.stringify({ codes, leaks, opened: device !== undefined }));
