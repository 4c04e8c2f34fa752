// `npm run demo:run`: Debian's ibv_rc_pingpong, unmodified, talks to itself through two devices in software; every packet is
// captured, and every ICRC checked.
//
//   node scripts/demo-run.mjs [PROGRAM [OPTIONS…]]
//
// Needs no RDMA hardware, no kernel module and no privilege, but ibverbs-utils (Debian) for the program.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { DeviceServer } from '@node-roce/device';

const roce = fileURLToPath(new URL('../packages/cli/bin/roce.js', import.meta.url));
const [program = 'ibv_rc_pingpong', ...options] = process.argv.slice(2);
const ADDRESSES = ['127.0.0.2', '127.0.0.3'];
const TRACE = 'demo-run.pcapng';

const folder = mkdtempSync(join(tmpdir(), 'roce-demo-'));
const devices = [];

/** The program on a device, its output behind a name. Resolves to its exit code. */
function start(device, name, args) {
  const line = [program, ...options, ...args];
  console.log(`${name} at ${device.address}: ${line.join(' ')}`);
  const child = spawn(process.execPath, [roce, 'run', '--socket', device.path, '--', ...line], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let output = '';
  child.stdout.on('data', (data) => {
    output += data;
  });
  return once(child, 'close').then(([code]) => {
    console.log(output.trimEnd().replaceAll(/^ */gm, `  ${name}: `));
    return code;
  });
}

let ok = false;
try {
  for (const [i, address] of ADDRESSES.entries())
    devices.push(
      // One trace has both ends: each packet leaves one device and arrives at the other.
      await DeviceServer.listen({
        address,
        path: join(folder, `${i}.sock`),
        ...(i === 0 ? { trace: TRACE } : {}),
      }),
    );
  const [first, second] = devices;
  const gid = /^ibv_.*pingpong$/.test(program) ? ['-g', '0'] : ['-x', '0'];
  const server = start(first, 'server', gid);
  // The client of a ping-pong tries once: the server has to listen.
  await sleep(1500);
  const codes = [await start(second, 'client', [...gid, '127.0.0.1']), await server];
  ok = codes.every((code) => code === 0);
  if (!ok) console.error(`exit codes: client ${codes[0]}, server ${codes[1]}`);
} finally {
  await Promise.all(devices.map((device) => device.close()));
  rmSync(folder, { recursive: true });
}

const { status, stdout, stderr } = spawnSync(process.execPath, [roce, 'flows', '--json', TRACE], {
  encoding: 'utf8',
  maxBuffer: 1 << 28,
});
if (status !== 0) throw new Error(`roce flows ${TRACE}: ${stderr}`);
const { rocePackets, icrc } = JSON.parse(stdout).summary;
console.log(
  `${TRACE}: ${rocePackets} RoCE v2 packets, ICRC right in ${icrc.ok}, wrong in ${icrc.bad}, unchecked in ${icrc.none}`,
);
process.exitCode = ok && rocePackets > 0 && icrc.ok === rocePackets ? 0 : 1;
