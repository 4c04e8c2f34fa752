/**
 * Where a packet's nanoseconds go: V8's own sampling profile of both sides of a WRITE, by what the code is
 * for. Time in the addon and in its system calls counts for the method of the link that called it.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { nodeRoce } from './contenders/node-roce.mjs';

/** A method of the UDP link that does little but call the addon. */
function udp(name) {
  return ({ functionName, url }) => functionName === name && url.endsWith('/link/dist/udp.js');
}

/** First match wins. */
const PARTS = [
  ['addon: send (system calls, ICRC, gather)', udp('send')],
  ['addon: receive (system calls, ICRC)', udp('receive')],
  ['addon: copies into memory', udp('copy')],
  ['link', ({ url }) => url.includes('/packages/link/')],
  [
    'engine: requester and completer',
    ({ url }) => /transport\/dist\/(requester|completer|recovery|sge|pacing)/.test(url),
  ],
  [
    'engine: responder and replies',
    ({ url }) => /transport\/dist\/(responder|repl|memory|unreliable)/.test(url),
  ],
  ['engine: the rest', ({ url }) => url.includes('/packages/transport/') || url.includes('/packages/wire/')],
  [
    'verbs: post, poll, run loop',
    ({ url }) => url.includes('/packages/verbs-api/') || url.includes('/bench/'),
  ],
  ['garbage collection', ({ functionName }) => functionName === '(garbage collector)'],
  ['idle', ({ functionName }) => functionName === '(idle)'],
  ['Node and V8', () => true],
];

function nanosecondsByPart(file) {
  const { nodes, samples, timeDeltas } = JSON.parse(readFileSync(file, 'utf8'));
  const partOf = new Map(
    nodes.map(({ id, callFrame }) => [id, PARTS.find(([, matches]) => matches(callFrame))[0]]),
  );
  const sums = new Map(PARTS.map(([name]) => [name, 0]));
  samples.forEach((id, i) => {
    const part = partOf.get(id);
    sums.set(part, sums.get(part) + timeDeltas[i] * 1000);
  });
  return sums;
}

/** Profiles and prints; returns nanoseconds a packet by part, for each side. */
export async function profile(say) {
  const directory = mkdtempSync(join(tmpdir(), 'roce-bench-'));
  try {
    const execArgv = ['--cpu-prof', `--cpu-prof-dir=${directory}`, '--cpu-prof-interval=200'];
    const plan = { operation: 'WRITE', size: 1 << 20, mtu: 4096, bytes: 4 * 2 ** 30 };
    const { messages } = await nodeRoce.stream(plan, { execArgv });
    // The warm-up is in the profile, too.
    const packets = (messages * 1.25 * plan.size) / plan.mtu;
    const result = readdirSync(directory).map((name) => {
      const sums = nanosecondsByPart(join(directory, name));
      return Object.fromEntries([...sums].map(([part, ns]) => [part, ns / packets]));
    });
    const of = (side) => side['addon: copies into memory'] + side['engine: responder and replies'];
    const [requester, responder] = result.sort((a, b) => of(a) - of(b));
    say('\nprofile of WRITE 1 MiB, path MTU 4096: ns a packet (requester polls: waiting is in its receive)');
    for (const [part] of PARTS) {
      say(
        `  ${part.padEnd(42)} ${requester[part].toFixed(0).padStart(6)} ${responder[part].toFixed(0).padStart(6)}`,
      );
    }
    return { requester, responder };
  } finally {
    rmSync(directory, { recursive: true });
  }
}
