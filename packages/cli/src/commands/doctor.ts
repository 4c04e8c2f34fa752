/** `roce doctor`: checks this machine for software RoCE, and the route to a peer. Changes nothing, but for `--xdp`. */
import type { Check } from '../doctor/check.ts';
import { checkAddon, checkDevice, checkLoopback, usualAddress } from '../doctor/machine.ts';
import { checkMtu, checkReachable, describeWay, findWay } from '../doctor/peer.ts';
import { checkXdp, tryXdp } from '../doctor/xdp.ts';
import type { Terminal } from '../terminal.ts';

export async function run(
  [peer]: readonly string[],
  { bind, xdp, json }: { bind?: string; xdp?: boolean; json: boolean },
  terminal: Terminal,
): Promise<number> {
  const checks: Check[] = [];
  for await (const check of examine(peer, bind, xdp === true)) {
    terminal.signal.throwIfAborted();
    checks.push(check);
    if (!json) print(check, terminal);
  }
  const good = checks.every((check) => check.verdict !== 'fail');
  if (json) terminal.json({ ok: good, checks });
  return good ? 0 : 1;
}

async function* examine(
  peer: string | undefined,
  bind: string | undefined,
  xdp: boolean,
): AsyncGenerator<Check> {
  yield await checkAddon();
  let address = bind ?? usualAddress();
  if (peer !== undefined) {
    const way = await findWay(peer, bind);
    if ('verdict' in way) yield way;
    else {
      address = way.source;
      yield describeWay(way);
      yield await checkMtu(way);
      yield await checkReachable(way);
    }
  }
  yield* checkDevice(address);
  yield xdp ? await tryXdp(address) : checkXdp();
  yield await checkLoopback();
}

function print({ check, verdict, text }: Check, terminal: Terminal): void {
  const { green, yellow, red, bold } = terminal.colors;
  const paint = { ok: green, warn: yellow, fail: red }[verdict];
  terminal.paragraph(`${paint(verdict.padEnd(4))}  `, `${bold(check)}: ${text}`);
  terminal.flush();
}
